"""The streamer's own uEntities: core.usubscription, core.utwin and core.ustreamer."""
