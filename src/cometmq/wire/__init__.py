"""Bytes to values and back: frames, commands, headers, bodies, messages. No I/O, no clock, no logging."""
