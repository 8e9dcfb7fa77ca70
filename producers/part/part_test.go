package part_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-rl/weir/producers/part"
)

type config struct{ Size int }

func (c *config) Validate() error {
	if c.Size < 0 {
		return errors.New("size: want 0 or more")
	}
	return nil
}

type opening struct{ config any }

type thing interface{ size() int }

type box struct{ n int }

func (b *box) size() int { return b.n }

// newBoxType makes a type whose open returns a nil pointer where the size is 13.
func newBoxType() *part.Type[config, opening, thing] {
	open := func(_ context.Context, cfg config, _ opening) (thing, error) {
		var b *box
		if cfg.Size == 13 {
			return b, errors.New("thirteen is unlucky")
		}
		return &box{cfg.Size}, nil
	}
	return part.NewType("box", func() config { return config{Size: 3} }, func(o opening) any { return o.config }, open)
}

func TestTypeOpensAPartWithItsOwnKeys(t *testing.T) {
	t.Parallel()
	box := newBoxType()
	first, second := box.Config().(*config), box.Config().(*config)
	if first == second {
		t.Fatal("two calls of Config share a struct")
	}
	first.Size = 5
	made, err := box.Open(t.Context(), opening{first})
	if err != nil || made.size() != 5 || second.Size != 3 || box.Name() != "box" {
		t.Errorf("Open made %v, %v with name %s; the untouched defaults are %+v", made, err, box.Name(), second)
	}
}

func TestTypeRefusesWhatItCannotOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config any
		want   string
	}{
		"another struct":   {&opening{}, "want *part_test.config"},
		"no struct":        {nil, "is a <nil>"},
		"no pointer":       {config{}, "is a part_test.config"},
		"a nil pointer":    {(*config)(nil), "is a *part_test.config"},
		"a fault":          {&config{Size: -1}, "box: size: want 0 or more"},
		"an error of open": {&config{Size: 13}, "unlucky"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := newBoxType().Open(t.Context(), opening{c.config})
			if err == nil || !strings.Contains(err.Error(), c.want) || made != nil {
				t.Errorf("got %v, %v: want nil and an error with %q", made, err, c.want)
			}
		})
	}
}

func TestTypeWithoutKeysHasNoConfiguration(t *testing.T) {
	t.Parallel()
	plain := part.NewType[struct{}, opening, thing]("plain", nil, func(o opening) any { return o.config }, func(context.Context, struct{}, opening) (thing, error) {
		return &box{1}, nil
	})
	made, err := plain.Open(t.Context(), opening{})
	if plain.Config() != nil || err != nil || made.size() != 1 {
		t.Errorf("Config is %v, Open made %v, %v", plain.Config(), made, err)
	}
}
