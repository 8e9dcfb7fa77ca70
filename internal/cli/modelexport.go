package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
)

func newModelExportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export run folder", Short: "Write a run's policy as a model folder like its first", Args: cobra.ExactArgs(2),
		Long: `Export writes the newest full checkpoint of a run, or the version of --step, into a folder that is empty or not there.
A version without a full checkpoint is learnt again from its batches, where the run keeps them. A policy
that began with a model folder comes out as that folder did: the same files, tensors and types, config.json, tokenizer
and chat template byte for byte; only numbers differ. Any other is written as --dtype and --shard-bytes say. The folder
appears whole or not at all, and Transformers, vLLM and SGLang read it.`,
		Example: "  weir model export mine my-model\n  weir model export mine at-20 --step 20",
	}
	step := cmd.Flags().Int64("step", -1, "a step of the run; the newest by default")
	dtype := cmd.Flags().String("dtype", string(gpu.BFloat16), "bfloat16 or float32, for a policy without a model folder")
	shard := cmd.Flags().Int64("shard-bytes", 5e9, "the most bytes of a file, for the same; 0 is one file")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if gpu.DType(*dtype).Bytes() == 0 {
			return fault.Usagef("--dtype %s: want %s or %s", *dtype, gpu.BFloat16, gpu.Float32)
		}
		if err := cmd.Flags().Set("run.name", args[0]); err != nil {
			return fault.Usage(err)
		}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		s, err := a.processOf(cfg)
		if err != nil {
			return err
		}
		var files []gpu.File
		version := int64(0)
		err = s.Models().UseVersion(cmd.Context(), *step, func(from *assembly.VersionFolder) (err error) {
			version = from.Version
			files, err = hf.Reproduce(cmd.Context(), from.Dir, args[1], gpu.ExportOptions{DType: gpu.DType(*dtype), ShardBytes: *shard})
			return err
		})
		if err != nil {
			return err
		}
		size := int64(0)
		for _, f := range files {
			size += f.Size
		}
		const wrote = "wrote run %s at step %d to %s: %d files, %s bytes\n"
		fmt.Fprintf(a.out, wrote, cfg.Run.Name, version, args[1], len(files), shortCount(size))
		return nil
	}
	return cmd
}
