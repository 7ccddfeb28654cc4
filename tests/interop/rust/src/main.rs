//! A uProtocol peer for tests: what the SDK can do, by lines of JSON.
//!
//! Its argument is a JSON object: `authority`, `entity`, `version`, and either `mqtt5` (`broker`, `off_vehicle`) or `zenoh`
//! (Zenoh's own keys). Every line of its input is a call, `{"call": N, "do": NAME, ...}`, and is answered by
//! `{"call": N, "ok": ...}` or `{"call": N, "error": [CODE, TEXT]}`, each when it is done. What the peer hears comes
//! unasked, with the name of the listener: `{"heard": NAME, ...}`. It ends with its input.

mod heard;
mod peer;
mod utwin;
mod values;

use std::sync::Arc;

use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use up_rust::{UStatus, UTransport};
use up_transport_mqtt5::{Mqtt5Transport, Mqtt5TransportOptions, MqttClientOptions, TransportMode};
use up_transport_zenoh::{zenoh_config, UPTransportZenoh};

use crate::peer::Peer;
use crate::values::{invalid, text};

async fn transport(config: &Value) -> Result<Arc<dyn UTransport>, UStatus> {
    let authority = text(config, "authority")?;
    if let Some(mqtt5) = config.get("mqtt5") {
        let options = Mqtt5TransportOptions {
            mode: if mqtt5["off_vehicle"] == true { TransportMode::OffVehicle } else { TransportMode::InVehicle },
            mqtt_client_options: MqttClientOptions { broker_uri: text(mqtt5, "broker")?, ..Default::default() },
            ..Default::default()
        };
        let transport = Mqtt5Transport::new(options, authority).await?;
        transport.connect().await?;
        return Ok(Arc::new(transport));
    }
    let mut zenoh = zenoh_config::Config::default();
    for (key, value) in config["zenoh"].as_object().ok_or_else(|| invalid("zenoh"))? {
        zenoh.insert_json5(key, &value.to_string()).map_err(invalid)?;
    }
    Ok(Arc::new(UPTransportZenoh::builder(authority)?.with_config(zenoh).build().await?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the argument is missing")?;
    let config: Value = serde_json::from_str(&argument)?;
    let (out, mut lines) = unbounded_channel::<Value>();
    tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(line) = lines.recv().await {
            stdout.write_all(format!("{line}\n").as_bytes()).await.expect("nobody reads");
            stdout.flush().await.expect("nobody reads");
        }
    });
    let peer = Arc::new(Peer::new(transport(&config).await?, &config, out.clone()).await?);
    out.send(json!({"call": 0, "ok": null}))?;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        let call: Value = serde_json::from_str(&line)?;
        let (peer, out) = (peer.clone(), out.clone());
        tokio::spawn(async move {
            let answer = match peer.perform(&call).await {
                Ok(value) => json!({"call": call["call"], "ok": value}),
                Err(status) => json!({"call": call["call"], "error": [status.code.value(), status.message]}),
            };
            let _ = out.send(answer);
        });
    }
    Ok(())
}
