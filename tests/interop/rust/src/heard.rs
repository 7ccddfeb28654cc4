//! What the peer hears goes out as lines. What a served method does is told by the call that opened it.

use std::time::Duration;

use async_trait::async_trait;
use protobuf::{Enum, Message};
use serde_json::{json, Value};
use tokio::sync::mpsc::UnboundedSender;
use up_rust::communication::{RequestHandler, ServiceInvocationError, UPayload};
use up_rust::{UAttributes, UCode, UListener, UMessage, UStatus};

use crate::values::payload;

/// Tells of everything that comes to one listener.
pub struct Teller {
    pub name: String,
    pub out: UnboundedSender<Value>,
}

impl Teller {
    fn tell(&self, message: &UMessage) {
        let bytes = message.write_to_bytes().expect("a received message can be serialized");
        let _ = self.out.send(json!({"heard": self.name, "message": hex::encode(bytes)}));
    }
}

#[async_trait]
impl UListener for Teller {
    async fn on_receive(&self, message: UMessage) {
        self.tell(&message);
    }
}

/// A method: it answers with what it was asked, or as `call` says (`payload`, `fail`, `late`).
pub struct Method {
    pub teller: Teller,
    pub call: Value,
}

#[async_trait]
impl RequestHandler for Method {
    async fn handle_request(
        &self,
        _resource: u16,
        attributes: &UAttributes,
        asked: Option<UPayload>,
    ) -> Result<Option<UPayload>, ServiceInvocationError> {
        self.teller.tell(&UMessage {
            attributes: Some(attributes.clone()).into(),
            payload: asked.clone().map(UPayload::payload),
            ..Default::default()
        });
        if self.call["late"] == true {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        if let Some(code) = self.call["fail"].as_i64().and_then(|code| UCode::from_i32(code as i32)) {
            return Err(UStatus::fail_with_code(code, "as the test wants").into());
        }
        Ok(payload(&self.call)?.or(asked))
    }
}
