package hf

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// StopTokens are the ids that end an answer, from config.json and from generation_config.json, which may name more.
func (f *Folder) StopTokens() ([]int32, error) {
	var out []int32
	add := func(ids ...int32) {
		for _, id := range ids {
			if id >= 0 && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	add(f.Config.EOSToken)
	add(f.Config.StopTokens...)
	b, err := os.ReadFile(filepath.Join(f.dir, generationName))
	if os.IsNotExist(err) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := newObject(generationName, b)
	if err != nil {
		return nil, err
	}
	add(o.readIDs("eos_token_id")...)
	return out, o.joinFaults()
}

// Stored lists the files of the weights with their contents.
func (f *Folder) Stored() []StoredFile {
	var out []StoredFile
	for _, x := range f.files.Files() {
		s := StoredFile{Name: x.Name, Size: x.Size, Numbers: map[string]int64{}}
		for _, t := range x.Tensors {
			s.Tensors++
			s.Numbers[string(t.DType)] += int64(gpu.Tensor{Shape: t.Shape}.Elements())
		}
		out = append(out, s)
	}
	return out
}

// StoredFile is a file of weights.
type StoredFile struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Tensors int    `json:"tensors"`
	// Numbers counts them by the type that they are stored as.
	Numbers map[string]int64 `json:"numbers"`
}
