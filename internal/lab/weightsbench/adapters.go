package weightsbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// adapters belong to the published versions of an engine with adapters.
type adapters struct {
	schemas.Adapter
	frozen exported
}

// exportAdapters has an engine that trains adapters write them alone, and the frozen weights. It gives nil for another engine.
func (s *scale) exportAdapters(ctx context.Context, engine gpu.Engine, versions *[]exported) (*adapters, error) {
	if a, ok := engine.(gpu.Adapting); !ok || !a.Adapts() {
		return nil, nil
	}
	write := func(name string, o gpu.ExportOptions) (out exported, err error) {
		out.dir, o.ShardBytes = filepath.Join(s.cfg.Dir, name), s.cfg.ShardBytes
		pending, err := engine.Export(ctx, out.dir, o)
		if err != nil {
			return out, err
		}
		files, err := pending.Wait(ctx)
		out.files = gpu.PolicyFiles(files)
		return out, err
	}
	out := &adapters{}
	err := s.measureStage("export the frozen weights, once", func() (n int64, err error) {
		out.frozen, err = write("frozen", gpu.ExportOptions{Frozen: true})
		return out.frozen.totalBytes(), err
	})
	if err != nil {
		return nil, err
	}
	for v := range 2 {
		if err := stepOnce(ctx, engine); err != nil {
			return nil, err
		}
		err := s.measureStage(fmt.Sprintf("export adapter %d", v), func() (int64, error) {
			e, err := write(fmt.Sprintf("adapter%d", v), gpu.ExportOptions{Adapter: true})
			(*versions)[v] = e
			return e.totalBytes(), err
		})
		if err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(filepath.Join((*versions)[0].dir, gpu.AdapterConfigFile))
	if err != nil {
		return nil, err
	}
	var peft struct {
		Rank  int     `json:"r"`
		Alpha float64 `json:"lora_alpha"`
	}
	if err := json.Unmarshal(data, &peft); err != nil {
		return nil, err
	}
	out.Rank, out.Alpha = peft.Rank, peft.Alpha
	for _, f := range out.frozen.files {
		out.Frozen = append(out.Frozen, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: f.Size})
	}
	return out, nil
}

// sendAdapters takes the versions over a broker to a reader's folder, merged.
func (s *scale) sendAdapters(ctx context.Context, run *streams.Run, model gpu.Config, versions []exported, a *adapters) (err error) {
	publisher, werr := weights.NewPublisher(run, weights.DefaultConfig())
	reader, rerr := weights.NewLoader(run, weights.DefaultConfig())
	folder, ferr := consumers.OpenFolder(filepath.Join(s.cfg.Dir, "merged"), func(dir string, c gpu.Config, dtype gpu.DType) error {
		_, err := hf.WriteConfig(dir, c, dtype)
		return err
	})
	if err := errors.Join(werr, rerr, ferr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	for v, e := range versions {
		m, err := s.newManifest(run, model, int64(v), e)
		if err != nil {
			return err
		}
		adapter := a.Adapter
		m.Adapter = &adapter
		name := []string{"broker: publish an adapter and, once, the frozen weights", "broker: publish an adapter"}[v]
		err = s.measureStage(name, func() (int64, error) {
			n := e.totalBytes()
			if v == 0 {
				n += a.frozen.totalBytes()
			}
			m, err = publisher.PublishFrom(ctx, m, weights.FileSource(append(e.filePaths(), a.frozen.filePaths()...)))
			return n, err
		})
		if err != nil {
			return err
		}
		a.Adapter = *m.Adapter
		name = []string{"broker: fetch both, verified, and merge to files", "broker: fetch an adapter, verified, and merge to files"}[v]
		err = s.measureStage(name, func() (int64, error) {
			_, err := folder.Land(ctx, reader, m, "")
			return 2 * s.out.Weights, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
