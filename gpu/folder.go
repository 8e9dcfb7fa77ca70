package gpu

import (
	"context"
	"path/filepath"
	"strings"
)

// DType is how numbers are stored, in config.json's words.
type DType string

// The types that an engine writes and reads.
const (
	// Float32 keeps every bit.
	Float32 DType = "float32"
	// BFloat16 keeps the upper half of a float32, rounded to nearest, ties to even.
	BFloat16 DType = "bfloat16"
)

// Bytes is the size of a number, 0 for a type that is neither.
func (d DType) Bytes() int {
	switch d {
	case Float32:
		return 4
	case BFloat16:
		return 2
	}
	return 0
}

// Names of files in a folder that Engine.Export and Engine.SaveOptimizer write. Weights in several files have Transformers'
// names, model-00001-of-00003.safetensors and so on, with an index.
const (
	ConfigFile  = "config.json"
	WeightsFile = "model.safetensors"
	// ValueHeadFile holds the value head alone: it is the trainer's, and no reader of the policy wants it.
	ValueHeadFile = "value_head.safetensors"
	OptimizerFile = "optimizer.safetensors"
	// AdapterFile and AdapterConfigFile are PEFT's, of an adapter alone.
	AdapterFile       = "adapter_model.safetensors"
	AdapterConfigFile = "adapter_config.json"
	// AdapterBaseFile names the frozen weights that an adapter was trained beside, by a hash: {"sha256": "..."}.
	AdapterBaseFile = "adapter_base.json"
	// AdapterFolder, in the folder of a model that is trained by adapters, has them apart from the merged weights.
	AdapterFolder = "adapter"
)

// LargeFile is the ShardBytes of folders that are kept: files of that size can be copied, hashed and read side by side.
const LargeFile = 4 << 30

// ExportOptions say how weights are written.
type ExportOptions struct {
	// DType of the numbers; "" is Float32.
	DType DType
	// ShardBytes bounds the numbers in a file, in bytes. Tensors are dealt in the order of [Weights]; a larger tensor has a
	// file to itself. 0 is a single file.
	ShardBytes int64
	// Adapter asks an engine that trains low-rank adapters for these alone, in PEFT's two files: AdapterFile and
	// AdapterConfigFile. Without it the weights that are written have the adapters merged in. Other engines do not read it.
	Adapter bool
	// Frozen asks an engine that trains adapters for the frozen weights, without adapters and without a value head. They are
	// written as BFloat16 where every number of theirs is a bfloat16, else as Float32, whatever DType is: nothing is lost.
	// Other engines do not read it.
	Frozen bool
}

// Adapting is an [Engine] that can train low-rank adapters beside frozen weights.
type Adapting interface {
	// Adapts reports whether it does. Then Export with Adapter writes AdapterFile, AdapterConfigFile and AdapterBaseFile, and
	// Export with Frozen writes the frozen weights.
	Adapts() bool
}

// File is a file that was written.
type File struct {
	// Name within the folder.
	Name string
	// Size in bytes.
	Size int64
}

// Pending is a folder that is being written.
type Pending interface {
	// Wait returns when every file is whole, or with the error; the folder is then to be removed. The files of weights come
	// first, in the order of the tensors, then all others. It may be called more than once.
	Wait(ctx context.Context) ([]File, error)
}

// Written is the Pending of an engine that has written everything before Export returns.
type Written []File

// Wait returns the files.
func (w Written) Wait(context.Context) ([]File, error) { return w, nil }

// PolicyFiles are the files of an export that hold the policy's weights, without the value head.
func PolicyFiles(files []File) []File {
	var out []File
	for _, f := range files {
		if isWeights(f.Name) && f.Name != ValueHeadFile && !strings.HasPrefix(f.Name, AdapterFolder+"/") {
			out = append(out, f)
		}
	}
	return out
}

func isWeights(name string) bool { return filepath.Ext(name) == ".safetensors" }
