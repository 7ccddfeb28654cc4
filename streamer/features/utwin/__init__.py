"""uTwin on the path of messages: steps that keep the last Publish of each topic, and initial values for new subscribers.

``feature`` is what the daemon gets. The service that answers requests is `streamer.features.utwin`.
"""
