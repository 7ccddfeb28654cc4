"""The streamer's own uEntities: core.usubscription and core.ustreamer."""
