// Package part makes the types of parts that a configuration names: tasks, agents, tools and rewards. The packages of these kinds
// wrap it, so that a type is a name, a struct with the defaults of its keys and a function that opens it:
//
//	tools.NewType("http", DefaultConfig, openTool)
package part

import (
	"context"
	"fmt"
)

// Type is the type of a part. C is the struct of its own keys, O the arguments that the part is opened with, and P the part. It is not
// changed after it is made.
type Type[C, O, P any] struct {
	name     string
	defaults func() C
	keys     func(o O) any
	open     func(ctx context.Context, cfg C, o O) (P, error)
}

// NewType makes a type. defaults makes a new struct of the type's keys; nil is a type without keys. keys finds the struct in these
// arguments, and open makes the part with a copy of it.
func NewType[C, O, P any](name string, defaults func() C, keys func(o O) any, open func(ctx context.Context, cfg C, o O) (P, error)) *Type[C, O, P] {
	return &Type[C, O, P]{name: name, defaults: defaults, keys: keys, open: open}
}

// Name is the type's name in a configuration.
func (t *Type[C, O, P]) Name() string { return t.name }

// Config is a pointer to a new C with the defaults, or nil for a type without keys.
func (t *Type[C, O, P]) Config() any {
	if t.defaults == nil {
		return nil
	}
	c := t.defaults()
	return &c
}

// Open makes the part. It is an error if the configuration is not of [Type.Config], or has a fault that its Validate reports. The part is
// nil where there is an error.
func (t *Type[C, O, P]) Open(ctx context.Context, o O) (part P, err error) {
	var none P
	cfg, err := t.checkedConfig(o)
	if err != nil {
		return none, err
	}
	if part, err = t.open(ctx, cfg, o); err != nil {
		return none, err // and not a pointer that is nil in an interface that is not
	}
	return part, nil
}

// checkedConfig is the configuration of an opening, checked.
func (t *Type[C, O, P]) checkedConfig(o O) (cfg C, err error) {
	if t.defaults == nil {
		return cfg, nil
	}
	own, ok := t.keys(o).(*C)
	if !ok || own == nil {
		return cfg, fmt.Errorf("%s: the configuration is a %T: want *%T", t.name, t.keys(o), cfg)
	}
	if checked, ok := any(own).(interface{ Validate() error }); ok {
		if err := checked.Validate(); err != nil {
			return cfg, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return *own, nil
}
