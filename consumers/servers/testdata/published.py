"""Holds requests and answers to the classes of the published servers: published.py KIND FILE, with an exchange in each line of the file."""

import dataclasses
import json
import sys


def vllm(path, request, answers):
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionStreamResponse
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest, GenerateTokensStreamResponse

    classes = {
        "/inference/v1/generate": (GenerateRequest, GenerateTokensStreamResponse),
        "/v1/completions": (CompletionRequest, CompletionStreamResponse),
    }
    if path not in classes:
        return 0
    asked, answered = classes[path]
    known(path, request, asked.model_fields)
    made = asked.model_validate(request)
    if path == "/inference/v1/generate":
        known(path, request["sampling_params"], made.sampling_params.__struct_fields__)
    for answer in answers:
        known(path, answer, answered.model_fields)
        for choice in answered.model_validate(answer).choices:
            assert choice.token_ids is not None, answer
    return 1 + len(answers)


def sglang(path, request, answers):
    from pydantic import TypeAdapter
    from sglang.srt.managers import io_struct as io
    from sglang.srt.sampling.sampling_params import SamplingParams

    if path == "/generate":
        known(path, request, [f.name for f in dataclasses.fields(io.GenerateReqInput)])
        made = TypeAdapter(io.GenerateReqInput).validate_python(request)
        made.normalize_batch_and_arguments()
        params = SamplingParams(**request["sampling_params"])
        params.normalize(None)
        params.verify(1 << 20)
        return 1
    classes = {
        "/pause_generation": io.PauseGenerationReqInput,
        "/continue_generation": io.ContinueGenerationReqInput,
        "/update_weights_from_disk": io.UpdateWeightFromDiskReqInput,
        "/update_weight_version": io.UpdateWeightVersionReqInput,
        "/weights_checker": io.CheckWeightsReqInput,
    }
    if path not in classes:
        return 0
    known(path, request, classes[path].__struct_fields__)
    TypeAdapter(classes[path]).validate_python(request)
    return 1


def known(path, value, fields):
    unknown = set(value) - set(fields)
    assert not unknown, f"{path}: the server knows no {sorted(unknown)}"


count = {}
for line in open(sys.argv[2]):
    exchange = json.loads(line)
    held = {"vllm": vllm, "sglang": sglang}[sys.argv[1]](exchange["path"], exchange["request"], exchange["answers"])
    if held:
        count[exchange["path"]] = count.get(exchange["path"], 0) + held
print(json.dumps(count))
