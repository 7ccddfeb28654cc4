"""The demonstration: an embedded broker, our daemon, a simulated vehicle and a simulated cloud, and the accounts of both."""
