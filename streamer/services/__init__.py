"""uEntities that live in the streamer itself: core.usubscription and core.ustreamer."""
