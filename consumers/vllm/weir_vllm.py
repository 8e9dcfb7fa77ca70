"""Weights of a policy version for a worker of vLLM, from files in the shared memory of the machine.

    PYTHONPATH=FOLDER vllm serve MODEL --worker-extension-cls weir_vllm.Transfer

vLLM adds the methods of Transfer to each of its workers (0.32.0, v1/worker/worker_base.py:285), and Weir calls them through POST
/collective_rpc. A version is staged while the workers sample: a thread maps its files and holds every tensor's name and shape against the
folder that the worker loaded last. Then, in a pause, it is loaded by vLLM's own reload from an iterator, as a folder is
(model_executor/model_loader/reload/inplace.py:36). Whatever cannot be taken is refused with the reason before a parameter is touched, and
Weir loads the folder instead. A load that fails raises: with data parallelism a caller sees the answers of the first engine alone, and the
errors of all (v1/engine/core_client.py:1699).
"""

from weir_stage import Stages


def restore_layers(model):
    """Gives the layers that a failed load has not reached their parameters back: else the next load takes what the failed load left."""
    from vllm.model_executor.model_loader.reload import layerwise

    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load() and info.kernel_tensors is not None:
            layerwise._place_kernel_tensors(layer, info)
            info.reset()
    if hasattr(model, "_original_do_torchao_reload"):
        model._do_torchao_reload = model._original_do_torchao_reload


class Transfer:
    """What `vllm serve --worker-extension-cls weir_vllm.Transfer` adds to a worker."""

    def weir_stages(self):
        return self.__dict__.setdefault("_weir_stages", Stages())

    def weir_begin(self):
        """Forgets what is staged and what a failed load left, and says why this worker takes nothing from shared memory: null if it does."""
        self.weir_stages().forget()
        restore_layers(self.model_runner.get_model())
        return {"state": "ready", "why": self.weir_fault()}

    def weir_fault(self):
        """Why this worker takes nothing from shared memory, or None."""
        quantization = self.model_config.quantization
        return f"its model is quantized ({quantization}): the loader of folders alone lays such weights out" if quantization else None

    def weir_stage(self, label, folder, files):
        """Begins to stage a version, or says how far it is. files has a list for each: name, bytes, inode, time of change in ns."""
        return self.weir_stages().stage(label, folder, files, self.model_config.model, self.weir_fault())

    def weir_load(self, label):
        """Replaces the weights by the staged version's. Where it raises after it began, another load alone makes the weights whole."""
        staged = self.weir_stages().take(label)
        try:
            self.reload_weights(weights_iterator=iter(staged.tensors))
        except Exception:
            restore_layers(self.model_runner.get_model())
            raise
        return {"state": "loaded", "why": None}
