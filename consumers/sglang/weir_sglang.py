"""Weights of a policy version for an SGLang, from files in the shared memory of the machine.

    weir plugin sglang FOLDER
    PYTHONPATH=FOLDER python3 -m sglang.launch_server --model-path MODEL

SGLang calls register() in each of its processes, by the entry point beside this file (0.5.23, srt/plugins/__init__.py:103). Weir calls
weir_begin, weir_stage and weir_load as the action of POST /weights_checker, which reaches the scheduler of every rank without a pause
(managers/tokenizer_control_mixin.py:890, managers/scheduler.py:1907). A version is staged while the ranks sample: a thread maps its files
and holds every tensor's name and shape against the folder that the rank loaded last. After weir_load, in a pause, the next POST
/update_weights_from_disk of that folder and label is SGLang's own load, whose iterator gives the mapped tensors
(model_executor/model_runner_components/weight_updater.py:172). Whatever cannot be taken is refused with the reason before a parameter is
touched, and Weir loads the folder instead.

What a load raises ends SGLang's scheduler; here it is caught and told. --custom-weight-loader serves for neither: what it raises ends the
scheduler, what it returns is not looked at and the label set (weight_updater.py:374 there, and
managers/scheduler_components/weight_updater.py:232), and its request waits until nothing is sampled. No tensor is pickled.
"""

import json

import torch

from weir_stage import Stages

MANAGER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
ITERATOR = "sglang.srt.model_loader.loader.DefaultModelLoader._get_weights_iterator"

stages = Stages()  # of the scheduler in this process
armed = None  # the version that the next load of its folder and label takes from shared memory, in every rank alike
loading = None  # the version that a load takes from there now


def register():
    """Has SGLang call this module where weights are checked and loaded and where the tensors of a folder are read."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{MANAGER}.check_weights", answer_check, HookType.AROUND)
    HookRegistry.register(f"{MANAGER}.update_weights_from_disk", load_version, HookType.AROUND)
    HookRegistry.register(ITERATOR, read_tensors, HookType.AROUND)
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.record_weight_version_change", name_weights, HookType.AROUND)


def answer_check(check_weights, manager, request):
    """Answers an action of Weir's: a list of the states of all ranks, as the message. Every other action is SGLang's."""
    global armed
    name, _, arguments = request.action.partition(" ")
    if name not in ACTIONS:
        return check_weights(manager, request)
    from sglang.srt.managers.io_struct import CheckWeightsReqOutput

    armed, staged = None, None
    try:
        state, staged = ACTIONS[name](manager, **json.loads(arguments))
    except Exception as e:
        state = {"state": "failed", "why": f"{type(e).__name__}: {e}"}
    states = gather_states(manager, state)
    if all(s["why"] is None for s in states):
        armed = staged
    # The answers of data-parallel replicas are joined by " | ".
    return CheckWeightsReqOutput(success=True, message=json.dumps(states).replace("|", "\\u007c"))


def gather_states(manager, state):
    """The states of all ranks: a rank's own answer reaches nobody but for the first's."""
    states = [None] * torch.distributed.get_world_size(group=manager.tp_cpu_group)
    torch.distributed.all_gather_object(states, state, group=manager.tp_cpu_group)
    return states


def find_fault(manager):
    """Why this server takes nothing from shared memory, or None."""
    from sglang.srt.runtime_context import get_parallel

    if manager.draft_worker is not None:
        return "it has a draft model, which is loaded from the same folder"
    if get_parallel().pp_size > 1:
        return "its layers are on several ranks, of which the first alone answers"
    return None


def begin(manager):
    """Forgets what is staged."""
    stages.forget()
    return {"state": "ready", "why": find_fault(manager)}, None


def stage(manager, label, folder, files):
    """Begins to stage a version, or says how far it is. files has a list for each: name, bytes, inode, time of change in ns."""
    at = manager.tp_worker.model_runner.model_config.model_path
    return stages.stage(label, folder, files, at, find_fault(manager)), None


def take(_, label):
    """Has the next load of a staged version take it from shared memory, where every rank has it."""
    return {"state": "loaded", "why": None}, stages.take(label)


def load_version(update_weights_from_disk, manager, request):
    """Loads a version. Where it fails after it began, another load alone makes the weights whole."""
    global armed, loading
    staged, armed = armed, None
    if staged is None or (staged.label, staged.folder) != (request.weight_version, request.model_path):
        return update_weights_from_disk(manager, request)
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqOutput

    staged.given, loading = False, staged
    try:
        torch.get_device_module().synchronize()  # the last batch may have been begun before the pause
        done = update_weights_from_disk(manager, request)
        fault = None if done.success else done.message
        if done.success and not staged.given:
            fault = "its loader did not ask for the tensors"
    except Exception as e:
        fault = f"{type(e).__name__}: {e}"
    finally:
        loading = None
    faults = [f"worker {i}: {f}" for i, f in enumerate(gather_states(manager, fault)) if f]
    if faults:
        return UpdateWeightFromDiskReqOutput(success=False, message="; ".join(faults))
    stages.known = (staged.folder, staged.shapes)
    return done


def read_tensors(get_weights_iterator, loader, source, **options):
    """The tensors of the version that is being loaded, once: where that fails, SGLang reads the folder itself."""
    if loading is None or loading.given or source.model_or_path != loading.folder:
        return get_weights_iterator(loader, source, **options)
    loading.given = True
    return ((source.prefix + name, tensor) for name, tensor in loading.tensors)


def name_weights(record_weight_version_change, scheduler, *args, **kwargs):
    """Names the weights. A pause in place leaves the results of the last batch for later (managers/scheduler.py:5821), and SGLang names its
    tokens, which the weights before sampled, by the new weights (:5652 counts the tokens that have arrived)."""
    from sglang.srt.runtime_context import get_serving
    from sglang.srt.utils.weight_versions import WeightVersionEvent

    before = get_serving().weight_version
    record_weight_version_change(scheduler, *args, **kwargs)
    if get_serving().weight_version == before:
        return
    for batch, _ in getattr(scheduler, "result_queue", ()):
        for request in batch.reqs:
            if request.finished() or request.inflight_middle_chunks > 0:
                continue
            arrived, events = len(request.output_ids), request.weight_version_events
            if events and events[-1] == WeightVersionEvent(before, arrived):
                events.pop()
            events.append(WeightVersionEvent(before, arrived + 1))


ACTIONS = {"weir_begin": begin, "weir_stage": stage, "weir_load": take}
