package view

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
)

// typesFile has the types of the API's answers for the check of the page's source.
var typesFile = filepath.Join("webcheck", "api.d.ts")

var update = flag.Bool("update", false, "write the types of the API again")

// The page's source is checked against the answers as the API gives them.
func TestTheTypesOfThePageAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	w := typeWriter{written: map[string]string{}}
	for _, answer := range []any{
		Summary{},
		Overview{},
		Picked{},
		Configuration{},
		Log{},
		runfolder.Distributions{},
		runfolder.GroupPage{},
		runfolder.Accounting{},
		runfolder.Page{},
		Detail{},
		Lanes{},
		runfolder.Bias{},
		runfolder.Streams{},
		ChatOffer{},
		chatLine{},
		map[string]*runfolder.Series{},
	} {
		w.nameOf(reflect.TypeOf(answer))
	}
	var b strings.Builder
	b.WriteString("// The answers of the API. TestTheTypesOfThePageAreThoseOfTheAPI keeps this file: its flag -update writes it again.\n")
	for _, name := range slices.Sorted(maps.Keys(w.written)) {
		b.WriteString("\n" + w.written[name])
	}
	if *update {
		require.NoError(t, os.WriteFile(typesFile, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(typesFile)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "the API has changed: go test ./internal/view -run TestTheTypesOfThePageAreThoseOfTheAPI -update")
}

// typeWriter writes interfaces of TypeScript for types of Go as JSON has them.
type typeWriter struct{ written map[string]string }

// nameOf returns a type's name, and writes the interfaces that it names.
func (w typeWriter) nameOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string"
	case t.Kind() == reflect.Pointer:
		return w.nameOf(t.Elem()) + " | null"
	case t.Kind() == reflect.Slice:
		return w.nameOf(t.Elem()) + "[]"
	case t.Kind() == reflect.Map:
		return fmt.Sprintf("Record<%s, %s>", w.nameOf(t.Key()), w.nameOf(t.Elem()))
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() != reflect.Struct:
		return "number"
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if _, begun := w.written[name]; !begun {
		w.written[name] = "" // it may name itself
		w.written[name] = fmt.Sprintf("export interface %s {\n%s}\n", name, strings.Join(w.fieldsOf(t), ""))
	}
	return name
}

func (w typeWriter) fieldsOf(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" {
			continue
		}
		of := w.nameOf(f.Type)
		optional := ""
		if strings.Contains(options, "omitempty") {
			optional, of = "?", strings.TrimSuffix(of, " | null")
		}
		out = append(out, fmt.Sprintf("  %s%s: %s;\n", cmp.Or(tag, f.Name), optional, of))
	}
	return out
}
