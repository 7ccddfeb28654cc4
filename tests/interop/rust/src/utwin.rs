//! The last messages of topics, asked of a uTwin with what the SDK has for it (feature `utwin`): the types of its answer.

use protobuf::reflect::ReflectValueBox;
use protobuf::well_known_types::any::Any;
use protobuf::{Enum, Message, MessageFull};
use serde_json::{json, Value};
use up_rust::communication::{RpcClient, UPayload};
use up_rust::core::utwin::{GetLastMessagesResponse, MessageResponse};
use up_rust::{UPayloadFormat, UStatus, UUri};

use crate::values::{format, invalid, proto_value, request_options, uri, uris};

/// Ask the uTwin at `method` for `topics`, in `format`, and tell what came: the format of the answer, and for each topic
/// its status code and the message.
pub async fn ask(client: &dyn RpcClient, call: &Value) -> Result<Value, UStatus> {
    let question = question(uris(call, "topics")?, format(call)?)?;
    let answer = client.invoke_method(uri(call, "method")?, request_options(call)?, Some(question)).await?;
    let answer = answer.ok_or_else(|| invalid("the answer has no payload"))?;
    let read: GetLastMessagesResponse = answer.extract_protobuf().map_err(invalid)?;
    let topics: Vec<Value> = read.responses.iter().map(told).collect::<Result<_, _>>()?;
    Ok(json!({"format": answer.payload_format().value(), "topics": topics}))
}

/// up-rust 0.9 does not export the type of the question, which its proto has: it is made by its description.
fn question(topics: Vec<UUri>, format: UPayloadFormat) -> Result<UPayload, UStatus> {
    let proto = GetLastMessagesResponse::descriptor().file_descriptor().clone();
    let kind = proto.message_by_package_relative_name("GetLastMessagesRequest").ok_or_else(|| invalid("proto"))?;
    let field = kind.field_by_name("topics").ok_or_else(|| invalid("topics"))?;
    let mut request = kind.new_instance();
    let batch = field.mut_message(request.as_mut());
    let field = batch.descriptor_dyn().field_by_name("uris").ok_or_else(|| invalid("uris"))?;
    let mut listed = field.mut_repeated(batch);
    for topic in topics {
        listed.push(ReflectValueBox::Message(Box::new(topic)));
    }
    let mut bytes = request.write_to_bytes_dyn().map_err(invalid)?;
    if format == UPayloadFormat::UPAYLOAD_FORMAT_PROTOBUF_WRAPPED_IN_ANY {
        let type_url = format!("type.googleapis.com/{}", kind.full_name());
        let wrapped = Any { type_url, value: bytes, ..Default::default() };
        bytes = wrapped.write_to_bytes().map_err(invalid)?;
    }
    Ok(UPayload::new(bytes, format))
}

fn told(each: &MessageResponse) -> Result<Value, UStatus> {
    let message = each.message.as_ref();
    Ok(json!({
        "topic": each.topic.to_uri(false),
        "code": each.status.code.value(),
        "text": each.status.message,
        "payload": message.and_then(|message| message.payload.as_ref()).map(hex::encode),
        "message": message.map(proto_value).transpose()?,
    }))
}
