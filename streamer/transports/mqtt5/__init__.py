"""The MQTT 5 transport: wire mapping, session state, options, and the connection that drives them."""
