"""The other side in end-to-end tests: uProtocol over `aiomqtt` and `eclipse-zenoh`, mapped without any code of ours.

Only the generated protobuf modules are shared; they are the specification's tables. `message.Plain` is a message in plain
Python types, so that a mistake in our vocabulary cannot hide in the comparison.
"""
