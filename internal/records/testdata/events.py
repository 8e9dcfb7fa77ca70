"""Reads a TensorBoard event file from the description of its format, with nothing but Python's own library.

python3 events.py FILE prints its version and scalars as JSON; a checksum that is wrong ends it.
"""

import json
import struct
import sys


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes):
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        (size,) = struct.unpack("<Q", head)
        (sum_of_size,) = struct.unpack("<I", data[at + 8 : at + 12])
        body = data[at + 12 : at + 12 + size]
        (sum_of_body,) = struct.unpack("<I", data[at + 12 + size : at + 16 + size])
        if masked(head) != sum_of_size or masked(body) != sum_of_body:
            sys.exit(f"the checksum of the record at byte {at} is wrong")
        yield body
        at += 16 + size


def varint(data: bytes, at: int):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            (value,) = struct.unpack("<d", data[at : at + 8])
            at += 8
        elif kind == 5:
            (value,) = struct.unpack("<f", data[at : at + 4])
            at += 4
        elif kind == 2:
            size, at = varint(data, at)
            value = data[at : at + size]
            at += size
        else:
            sys.exit(f"wire type {kind}")
        yield number, value


version, scalars = "", []
for record in records(open(sys.argv[1], "rb").read()):
    event = dict(fields(record))
    if 3 in event:
        version = event[3].decode()
    for number, value in fields(event.get(5, b"")):
        entry = dict(fields(value))
        scalars.append({"Wall": event[1], "Step": event.get(2, 0), "Tag": entry[1].decode(), "Value": entry[2]})
print(json.dumps({"Version": version, "Scalars": scalars}))
