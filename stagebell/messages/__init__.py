"""What travels between agents: envelopes, their bytes, the types in them, failures and ids.

Everything here is pure: no clock, no socket, no await.

    ids         names of messages, turns, calls and outputs; the partition of an agent
    envelope    one message with its addresses
    codec       envelope ↔ bytes, and the short form in which other systems publish
    registry    message class ↔ wire name ↔ bytes
    wire_types  how one class is written and read (used by the registry)
    failure     exception ↔ bytes
    fields      the checks of single fields (used by the codec)
    reasons     an error's reason in a few words
"""
