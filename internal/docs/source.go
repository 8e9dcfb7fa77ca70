package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/weir-rl/weir"

// source reads the comments of struct types from the module's files.
type source struct {
	root string
	// types maps "folder.Type" to its declaration, choices a string type to its constants; seen holds the folders
	// that were read.
	types   map[string]*typeDoc
	choices map[string][]choice
	seen    []string
}

// choice is a constant of a string type.
type choice struct{ value, about string }

// newSource reads from the module in root.
func newSource(root string) source {
	return source{root: root, types: map[string]*typeDoc{}, choices: map[string][]choice{}}
}

// typeDoc holds the comments of a struct.
type typeDoc struct {
	// about is the type's comment.
	about string
	// fields maps a field's name to its comment; fields that share a comment are named in it.
	fields map[string]string
	// names are the fields' names in order.
	names []string
}

// typeComments returns the comments of a struct type of this module.
func (s *source) typeComments(t reflect.Type) (*typeDoc, error) {
	folder, ours := strings.CutPrefix(t.PkgPath(), module)
	if !ours {
		return nil, fmt.Errorf("%s is no type of this module", t)
	}
	if !slices.Contains(s.seen, folder) {
		if err := s.readFolder(folder); err != nil {
			return nil, err
		}
	}
	d, ok := s.types[folder+"."+t.Name()]
	if !ok {
		return nil, fmt.Errorf("%s is not declared in %s", t, folder)
	}
	return d, nil
}

// readFolder parses a folder.
func (s *source) readFolder(folder string) error {
	files, err := filepath.Glob(filepath.Join(s.root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		return err
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.addType(folder, g, spec)
				case *ast.ValueSpec:
					s.addChoice(folder, spec)
				}
			}
		}
	}
	s.seen = append(s.seen, folder)
	return nil
}

// addChoice notes a constant with a comment and a type of its own.
func (s *source) addChoice(folder string, v *ast.ValueSpec) {
	t, typed := v.Type.(*ast.Ident)
	if !typed || v.Doc == nil || len(v.Names) != 1 || len(v.Values) != 1 {
		return
	}
	value, ok := v.Values[0].(*ast.BasicLit)
	if !ok || value.Kind != token.STRING {
		return
	}
	text, err := strconv.Unquote(value.Value)
	if err != nil {
		return
	}
	about := strings.TrimPrefix(joinComment(v.Doc), v.Names[0].Name+" ")
	s.choices[folder+"."+t.Name] = append(s.choices[folder+"."+t.Name], choice{text, about})
}

func (s *source) addType(folder string, g *ast.GenDecl, t *ast.TypeSpec) {
	body, ok := t.Type.(*ast.StructType)
	if !ok {
		return
	}
	comment := t.Doc
	if comment == nil {
		comment = g.Doc
	}
	d := &typeDoc{about: joinComment(comment), fields: map[string]string{}}
	last := ""
	for _, f := range body.Fields.List {
		if text := joinComment(f.Doc); text != "" {
			last = text
		}
		for _, name := range f.Names {
			d.names = append(d.names, name.Name)
			if f.Doc != nil || mentionsName(last, name.Name) {
				d.fields[name.Name] = last
			}
		}
	}
	s.types[folder+"."+t.Name.Name] = d
}

// joinComment is a comment without its line breaks; a paragraph that is indented, a formula, keeps its place in code marks.
func joinComment(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	var parts []string
	for line := range strings.Lines(c.Text()) {
		text := strings.TrimSpace(line)
		if text != "" && strings.HasPrefix(line, "\t") {
			text = "`" + text + "`"
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, " ")
}

func mentionsName(text, name string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
}

// GoFiles calls each for the module's Go files that are not tests.
func GoFiles(root string, each func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "runs") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return each(path)
	})
}
