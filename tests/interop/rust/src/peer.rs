//! One uEntity, with everything that the SDK's communication layer has.

use std::collections::HashMap;
use std::sync::Arc;

use protobuf::Message;
use serde_json::{json, Value};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, OnceCell};
use up_rust::communication::{
    InMemoryRpcClient, InMemoryRpcServer, InMemorySubscriber, NotificationError, Notifier, PubSubError, Publisher,
    RegistrationError, RequestHandler, RpcClient, RpcClientUSubscription, RpcServer, ServiceInvocationError,
    SimpleNotifier, SimplePublisher, Subscriber,
};
use up_rust::core::usubscription::{
    FetchSubscribersRequest, FetchSubscriptionsRequest, NotificationsRequest, ResetRequest, SubscriptionRequest,
    USubscription, UnsubscribeRequest,
};
use up_rust::{LocalUriProvider, StaticUriProvider, UCode, UListener, UMessage, UStatus, UTransport};

use crate::heard::{Method, Teller};
use crate::utwin;
use crate::values::{
    bytes, invalid, number, payload, payload_value, proto_value, publish_options, request_options, resource, text, uri,
};

pub struct Peer {
    transport: Arc<dyn UTransport>,
    uris: Arc<dyn LocalUriProvider>,
    out: UnboundedSender<Value>,
    publisher: SimplePublisher,
    notifier: SimpleNotifier,
    server: InMemoryRpcServer,
    client: OnceCell<Arc<InMemoryRpcClient>>,
    subscriber: OnceCell<InMemorySubscriber>,
    listeners: Mutex<HashMap<String, Arc<dyn UListener>>>,
    methods: Mutex<HashMap<u16, Arc<dyn RequestHandler>>>,
}

fn not_registered(error: RegistrationError) -> UStatus {
    let code = match &error {
        RegistrationError::Unknown(status) => return status.clone(),
        RegistrationError::AlreadyExists => UCode::ALREADY_EXISTS,
        RegistrationError::MaxListenersExceeded => UCode::RESOURCE_EXHAUSTED,
        RegistrationError::NoSuchListener => UCode::NOT_FOUND,
        RegistrationError::PushDeliveryMethodNotSupported => UCode::UNIMPLEMENTED,
        RegistrationError::InvalidFilter(_) => UCode::INVALID_ARGUMENT,
    };
    UStatus::fail_with_code(code, error.to_string())
}

fn not_invoked(error: ServiceInvocationError) -> UStatus {
    match error {
        ServiceInvocationError::RpcError(status) => status,
        other => other.into(),
    }
}

impl Peer {
    pub async fn new(
        transport: Arc<dyn UTransport>,
        config: &Value,
        out: UnboundedSender<Value>,
    ) -> Result<Peer, UStatus> {
        let version = number(config, "version")?.try_into().map_err(invalid)?;
        let uris: Arc<dyn LocalUriProvider> =
            Arc::new(StaticUriProvider::new(text(config, "authority")?, number(config, "entity")?, version));
        Ok(Peer {
            publisher: SimplePublisher::new(transport.clone(), uris.clone()),
            notifier: SimpleNotifier::new(transport.clone(), uris.clone()),
            server: InMemoryRpcServer::new(transport.clone(), uris.clone()),
            client: OnceCell::new(),
            subscriber: OnceCell::new(),
            listeners: Mutex::default(),
            methods: Mutex::default(),
            transport,
            uris,
            out,
        })
    }

    pub async fn perform(&self, call: &Value) -> Result<Value, UStatus> {
        let what = text(call, "do")?;
        match what.as_str() {
            "send" => {
                let message = UMessage::parse_from_bytes(&bytes(call, "message")?).map_err(invalid)?;
                self.transport.send(message).await?;
            }
            "listen" => {
                let (source, sink) = (uri(call, "source")?, uri(call, "sink").ok());
                self.transport.register_listener(&source, sink.as_ref(), self.listener(call).await?).await?;
            }
            "unlisten" => {
                let (source, sink) = (uri(call, "source")?, uri(call, "sink").ok());
                self.transport.unregister_listener(&source, sink.as_ref(), self.listener(call).await?).await?;
            }
            "publish" => self
                .publisher
                .publish(resource(call)?, publish_options(call)?, payload(call)?)
                .await
                .map_err(|error| match error {
                    PubSubError::PublishError(status) => status,
                    other => invalid(other),
                })?,
            "notify" => self
                .notifier
                .notify(resource(call)?, &uri(call, "to")?, publish_options(call)?, payload(call)?)
                .await
                .map_err(|error| match error {
                    NotificationError::NotifyError(status) => status,
                    other => invalid(other),
                })?,
            "start_listening" => {
                let listener = self.listener(call).await?;
                self.notifier.start_listening(&uri(call, "topic")?, listener).await.map_err(not_registered)?;
            }
            "stop_listening" => {
                let listener = self.listener(call).await?;
                self.notifier.stop_listening(&uri(call, "topic")?, listener).await.map_err(not_registered)?;
            }
            // up-rust 0.9 has handlers of changes, but does not export their trait.
            "subscribe" => self
                .subscriber()
                .await?
                .subscribe(&uri(call, "topic")?, self.listener(call).await?, None)
                .await
                .map_err(not_registered)?,
            "unsubscribe" => self
                .subscriber()
                .await?
                .unsubscribe(&uri(call, "topic")?, self.listener(call).await?)
                .await
                .map_err(not_registered)?,
            "invoke" => {
                let answer = self
                    .client()
                    .await?
                    .invoke_method(uri(call, "method")?, request_options(call)?, payload(call)?)
                    .await
                    .map_err(not_invoked)?;
                return Ok(payload_value(answer));
            }
            "serve" => {
                let teller = self.teller(text(call, "name")?);
                let method: Arc<dyn RequestHandler> = Arc::new(Method { teller, call: call.clone() });
                self.methods.lock().await.insert(resource(call)?, method.clone());
                self.server.register_endpoint(None, resource(call)?, method).await.map_err(not_registered)?;
            }
            "unserve" => {
                let resource = resource(call)?;
                let method = self.methods.lock().await.remove(&resource).ok_or_else(|| invalid("resource"))?;
                self.server.unregister_endpoint(None, resource, method).await.map_err(not_registered)?;
            }
            "ask_usubscription" => return self.ask_usubscription(call).await,
            "ask_utwin" => return utwin::ask(self.client().await?.as_ref(), call).await,
            "own_uri" => return Ok(json!(self.uris.get_source_uri().to_uri(false))),
            _ => return Err(UStatus::fail_with_code(UCode::UNIMPLEMENTED, what)),
        }
        Ok(Value::Null)
    }

    /// The operations of the SDK's uSubscription client, by their names.
    async fn ask_usubscription(&self, call: &Value) -> Result<Value, UStatus> {
        let client = RpcClientUSubscription::new(self.client().await?);
        let topic = Some(uri(call, "topic")?);
        match text(call, "operation")?.as_str() {
            "subscribe" => {
                let request = SubscriptionRequest { topic: topic.into(), ..Default::default() };
                proto_value(&client.subscribe(request).await?)
            }
            "unsubscribe" => {
                let request = UnsubscribeRequest { topic: topic.into(), ..Default::default() };
                client.unsubscribe(request).await.map(|()| Value::Null)
            }
            "fetch_subscriptions" => {
                let mut request = FetchSubscriptionsRequest::default();
                request.set_topic(uri(call, "topic")?);
                proto_value(&client.fetch_subscriptions(request).await?)
            }
            "fetch_subscribers" => {
                let request = FetchSubscribersRequest { topic: topic.into(), ..Default::default() };
                proto_value(&client.fetch_subscribers(request).await?)
            }
            "register_for_notifications" => {
                let request = NotificationsRequest { topic: topic.into(), ..Default::default() };
                client.register_for_notifications(request).await.map(|()| Value::Null)
            }
            "unregister_for_notifications" => {
                let request = NotificationsRequest { topic: topic.into(), ..Default::default() };
                client.unregister_for_notifications(request).await.map(|()| Value::Null)
            }
            "reset" => client.reset(ResetRequest::default()).await.map(|_| Value::Null),
            other => Err(invalid(other)),
        }
    }

    async fn client(&self) -> Result<Arc<InMemoryRpcClient>, UStatus> {
        let new = || async { InMemoryRpcClient::new(self.transport.clone(), self.uris.clone()).await.map(Arc::new) };
        self.client.get_or_try_init(new).await.cloned().map_err(not_registered)
    }

    async fn subscriber(&self) -> Result<&InMemorySubscriber, UStatus> {
        let new = || InMemorySubscriber::new(self.transport.clone(), self.uris.clone());
        self.subscriber.get_or_try_init(new).await.map_err(not_registered)
    }

    fn teller(&self, name: String) -> Teller {
        Teller { name, out: self.out.clone() }
    }

    /// The listener of this name, the same for every call.
    async fn listener(&self, call: &Value) -> Result<Arc<dyn UListener>, UStatus> {
        let name = text(call, "name")?;
        let mut listeners = self.listeners.lock().await;
        Ok(listeners.entry(name.clone()).or_insert_with(|| Arc::new(self.teller(name))).clone())
    }
}
