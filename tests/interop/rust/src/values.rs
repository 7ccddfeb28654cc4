//! What a call contains, as types of the SDK.

use std::fmt::Display;
use std::str::FromStr;

use protobuf::{Enum, Message};
use serde_json::{json, Value};
use up_rust::communication::{CallOptions, UPayload};
use up_rust::{UCode, UPayloadFormat, UPriority, UStatus, UUri};

pub fn invalid(reason: impl Display) -> UStatus {
    UStatus::fail_with_code(UCode::INVALID_ARGUMENT, reason.to_string())
}

pub fn text(call: &Value, key: &str) -> Result<String, UStatus> {
    call[key].as_str().map(str::to_owned).ok_or_else(|| invalid(key))
}

pub fn number(call: &Value, key: &str) -> Result<u32, UStatus> {
    optional(call, key)?.ok_or_else(|| invalid(key))
}

pub fn optional(call: &Value, key: &str) -> Result<Option<u32>, UStatus> {
    match &call[key] {
        Value::Null => Ok(None),
        value => value.as_u64().and_then(|v| v.try_into().ok()).map(Some).ok_or_else(|| invalid(key)),
    }
}

pub fn resource(call: &Value) -> Result<u16, UStatus> {
    number(call, "resource")?.try_into().map_err(invalid)
}

pub fn uri(call: &Value, key: &str) -> Result<UUri, UStatus> {
    UUri::from_str(&text(call, key)?).map_err(invalid)
}

pub fn uris(call: &Value, key: &str) -> Result<Vec<UUri>, UStatus> {
    let listed = call[key].as_array().ok_or_else(|| invalid(key))?;
    listed.iter().map(|each| UUri::from_str(each.as_str().unwrap_or_default()).map_err(invalid)).collect()
}

pub fn bytes(call: &Value, key: &str) -> Result<Vec<u8>, UStatus> {
    hex::decode(text(call, key)?).map_err(invalid)
}

fn priority(call: &Value) -> Result<Option<UPriority>, UStatus> {
    Ok(optional(call, "priority")?.and_then(|value| UPriority::from_i32(value as i32)))
}

pub fn request_options(call: &Value) -> Result<CallOptions, UStatus> {
    let token = call["token"].as_str().map(str::to_owned);
    Ok(CallOptions::for_rpc_request(number(call, "ttl")?, None, token, priority(call)?))
}

pub fn publish_options(call: &Value) -> Result<CallOptions, UStatus> {
    Ok(CallOptions::for_publish(optional(call, "ttl")?, None, priority(call)?))
}

pub fn format(call: &Value) -> Result<UPayloadFormat, UStatus> {
    UPayloadFormat::from_i32(number(call, "format")? as i32).ok_or_else(|| invalid("format"))
}

/// `payload` (hexadecimal) and `format`, or none.
pub fn payload(call: &Value) -> Result<Option<UPayload>, UStatus> {
    if call["payload"].is_null() {
        return Ok(None);
    }
    Ok(Some(UPayload::new(bytes(call, "payload")?, format(call)?)))
}

pub fn payload_value(payload: Option<UPayload>) -> Value {
    match payload {
        None => Value::Null,
        Some(payload) => {
            let format = payload.payload_format().value();
            json!({"format": format, "payload": hex::encode(payload.payload())})
        }
    }
}

pub fn proto_value(message: &impl Message) -> Result<Value, UStatus> {
    message.write_to_bytes().map(|bytes| json!(hex::encode(bytes))).map_err(invalid)
}
