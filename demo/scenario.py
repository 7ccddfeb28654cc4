"""The authorities and uEntities of the demonstration, and the names of its flows."""

from streamer.uprotocol.uri import UUri

GATEWAY = "gateway.veh1"
VEHICLE = "veh1"
SLEEPER = "veh2"
CLOUD = "cloud"

SPEED = UUri.parse("//veh1/A8001/2/8001")
DOOR = UUri.parse("//veh1/A8002/2/8002")
CLIMATE = UUri.parse("//veh1/A8003/2/1")
SILENT = UUri.parse("//veh1/A8004/2/1")
DRIVER_APP = UUri.parse("//veh1/A8005/1/0")
CLOUD_APP = UUri.parse("//cloud/B0001/1/0")
SLEEPERS_CLIMATE = UUri.parse("//veh2/A8003/2/1")

SPEED_FLOW = "speed"
DOOR_FLOW = "doors"
CLIMATE_FLOW = "request, climate"
ANSWER_FLOW = "response, climate"
SILENT_FLOW = "request, service is silent"
LATE_FLOW = "request, comes too late"
ASLEEP_FLOW = "request, vehicle is asleep"
FORBIDDEN_FLOW = "request, no route leads"

FLOWS = {
    SPEED_FLOW: f"{VEHICLE} → {CLOUD}",
    DOOR_FLOW: f"{VEHICLE} → {CLOUD}",
    CLIMATE_FLOW: f"{CLOUD} → {VEHICLE}",
    ANSWER_FLOW: f"{VEHICLE} → {CLOUD}",
    SILENT_FLOW: f"{CLOUD} → {VEHICLE}",
    LATE_FLOW: f"{CLOUD} → {VEHICLE}",
    ASLEEP_FLOW: f"{CLOUD} → {SLEEPER}",
    FORBIDDEN_FLOW: f"{VEHICLE} → {SLEEPER}",
}
"""Every flow, and its path."""

ANSWERED_CALLS = (CLIMATE_FLOW, LATE_FLOW, ASLEEP_FLOW, FORBIDDEN_FLOW)
"""Requests that must be answered: by the service, or by the streamer that could not deliver them."""

SILENT_CALLS = (SILENT_FLOW,)
"""Requests that arrive at a service which never answers."""

TTL_MS = 10_000
"""The TTL of Requests and of their Responses, which have to outlive a take-over."""

PATIENCE_S = 30.0
"""How much longer than the TTL a caller waits for an answer that is due."""
