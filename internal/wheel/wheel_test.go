package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elfProgram is the smallest program for a machine, with one segment of a type.
func elfProgram(t *testing.T, machine elf.Machine, segment elf.ProgType, size uint64) []byte {
	t.Helper()
	var out bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	require.NoError(t, binary.Write(&out, binary.LittleEndian, header))
	require.NoError(t, binary.Write(&out, binary.LittleEndian, elf.Prog64{Type: uint32(segment), Filesz: size}))
	return out.Bytes()
}

// machoProgram is the smallest program for a processor that names the oldest macOS it runs on.
func machoProgram(t *testing.T, cpu macho.Cpu, oldest uint32) []byte {
	t.Helper()
	var out bytes.Buffer
	words := []uint32{macho.Magic64, uint32(cpu), 0, uint32(macho.TypeExec), 1, 24, 0, 0, loadBuildVersion, 24, 1, oldest, oldest, 0}
	require.NoError(t, binary.Write(&out, binary.LittleEndian, words))
	return out.Bytes()
}

func TestThePlatformIsReadFromTheProgram(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program []byte
		want    string // tags, or the error
	}{
		"linux on amd64": {elfProgram(t, elf.EM_X86_64, elf.PT_LOAD, 120), "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64"},
		"linux on arm64": {elfProgram(t, elf.EM_AARCH64, elf.PT_LOAD, 120), "manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64"},
		"macOS on amd64": {machoProgram(t, macho.CpuAmd64, 12<<16), "macosx_12_0_x86_64"},
		"macOS on arm64": {machoProgram(t, macho.CpuArm64, 12<<16|3<<8|1), "macosx_12_3_arm64"},
		"with a libc":    {elfProgram(t, elf.EM_X86_64, elf.PT_INTERP, 0), "it is linked dynamically, and a wheel promises a program for every libc: build it with CGO_ENABLED=0"},
		"cut":            {elfProgram(t, elf.EM_X86_64, elf.PT_LOAD, 4096), "it is cut: a segment ends at byte 4096 of 120"},
		"of a mainframe": {elfProgram(t, elf.EM_S390, elf.PT_LOAD, 0), "a program for EM_S390: there are wheels for x86_64 and aarch64"},
		"a script":       {[]byte("#!/bin/sh\n"), "no program for linux or macOS"},
		"nothing":        {nil, "no program for linux or macOS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tags, err := platformTags(c.program)
			if err != nil {
				require.EqualError(t, err, c.want)
				return
			}
			require.Equal(t, c.want, strings.Join(tags, "."))
		})
	}
}

func TestVersionsAreWrittenAsPythonDoes(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "0.10.0": "0.10.0", "1.2.3-rc.1": "1.2.3rc1", "v2.0.0-beta4": "2.0.0b4", "0.0.1-SNAPSHOT-5a8b79e": "0.0.1.dev0+g5a8b79e",
		"0.0.1-SNAPSHOT": "0.0.1.dev0", "dev": "", "1.2": "", "1.2.3-nightly": "", "1.2.3/../x": "", "": "",
	} {
		got, err := pythonVersion(version)
		require.Equal(t, want, got, version)
		if want == "" {
			require.ErrorContains(t, err, fmt.Sprintf("version %q: want one such as 1.2.3", version))
		} else {
			require.NoError(t, err)
		}
	}
}

// pip checks no hash of RECORD when it installs, and pip check, uv and auditors do.
func TestTheRecordHoldsEveryFile(t *testing.T) {
	t.Parallel()
	w := wheel{version: "1.2.3", tags: []string{"a_1", "b_2"}, program: []byte("program")}
	require.NoError(t, w.readSources(filepath.Join("..", "..")))
	data, err := w.pack()
	require.NoError(t, err)
	again, err := w.pack()
	require.NoError(t, err)
	require.Equal(t, data, again, "the same bytes")
	require.Equal(t, "weir_rl-1.2.3-py3-none-a_1.b_2.whl", w.name())

	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[f.Name] = string(text)
		want := fs.FileMode(0o644)
		if f.Name == "weir_rl-1.2.3.data/scripts/weir" {
			want = 0o755
		}
		require.Equal(t, want, f.Mode(), f.Name)
		require.Equal(t, 1980, f.Modified.UTC().Year())
	}
	const info = "weir_rl-1.2.3.dist-info/"
	listed := map[string]bool{}
	for line := range strings.Lines(files[info+"RECORD"]) {
		parts := strings.Split(strings.TrimSpace(line), ",")
		require.Len(t, parts, 3, line)
		listed[parts[0]] = true
		if parts[0] == info+"RECORD" {
			continue
		}
		sum := sha256.Sum256([]byte(files[parts[0]]))
		require.Equal(t, "sha256="+base64.RawURLEncoding.EncodeToString(sum[:]), parts[1], line)
		require.Equal(t, fmt.Sprint(len(files[parts[0]])), parts[2], line)
	}
	require.Len(t, listed, len(files))
	for _, name := range []string{"weir/__init__.py", "weir/py.typed", info + "licenses/LICENSE", info + "licenses/NOTICE"} {
		require.True(t, listed[name], name)
	}
	require.Equal(t, "Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\nTag: py3-none-a_1\nTag: py3-none-b_2\n", files[info+"WHEEL"])
	metadata := files[info+"METADATA"]
	require.Contains(t, metadata, "Name: weir-rl\nVersion: 1.2.3\nSummary: Reinforcement learning for LLM agents over a message stream\nLicense-Expression: Apache-2.0\nRequires-Python: >=3.10\n")
	require.Contains(t, metadata, "\n\n# weir-rl\n", "the readme is the description")
}
