"""Prints each scalar that TensorBoard reads in a folder, as JSON: wall, step, tag, value."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

read = EventAccumulator(sys.argv[1])
read.Reload()
tags = sorted(read.Tags()["scalars"])
json.dump([{"Wall": x.wall_time, "Step": x.step, "Tag": tag, "Value": x.value} for tag in tags for x in read.Scalars(tag)], sys.stdout)
