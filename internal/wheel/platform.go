package main

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
)

// platformTags returns the platforms of a program as pip names them. A static program for linux runs with every libc, so its wheel is both
// of manylinux and of musllinux.
func platformTags(program []byte) ([]string, error) {
	if f, err := elf.NewFile(bytes.NewReader(program)); err == nil {
		return linuxTags(f, len(program))
	}
	if f, err := macho.NewFile(bytes.NewReader(program)); err == nil {
		return macTags(f, program)
	}
	return nil, errors.New("no program for linux or macOS")
}

// linuxTags returns the tags of an ELF program.
func linuxTags(f *elf.File, size int) ([]string, error) {
	arch, known := map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}[f.Machine]
	if !known {
		return nil, fmt.Errorf("a program for %v: there are wheels for x86_64 and aarch64", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return nil, errors.New("it is linked dynamically, and a wheel promises a program for every libc: build it with CGO_ENABLED=0")
		}
		if p.Off+p.Filesz > uint64(size) {
			return nil, fmt.Errorf("it is cut: a segment ends at byte %d of %d", p.Off+p.Filesz, size)
		}
	}
	return []string{"manylinux2014_" + arch, "manylinux_2_17_" + arch, "musllinux_1_1_" + arch}, nil
}

// macTags returns the tag of a Mach-O program: the oldest macOS that it runs on, as the linker noted it.
func macTags(f *macho.File, program []byte) ([]string, error) {
	arch, known := map[macho.Cpu]string{macho.CpuAmd64: "x86_64", macho.CpuArm64: "arm64"}[f.Cpu]
	if !known {
		return nil, fmt.Errorf("a program for %v: there are wheels for x86_64 and arm64", f.Cpu)
	}
	oldest := ""
	for _, l := range f.Loads {
		if s, ok := l.(*macho.Segment); ok && s.Offset+s.Filesz > uint64(len(program)) {
			return nil, fmt.Errorf("it is cut: segment %s ends at byte %d of %d", s.Name, s.Offset+s.Filesz, len(program))
		}
		if raw := l.Raw(); f.ByteOrder.Uint32(raw) == loadBuildVersion && len(raw) >= 16 {
			version := f.ByteOrder.Uint32(raw[12:]) // as 0xMMMMmmpp
			oldest = fmt.Sprintf("%d_%d", version>>16, version>>8&0xff)
		}
	}
	if oldest == "" {
		return nil, errors.New("it does not name the oldest macOS that it runs on")
	}
	return []string{"macosx_" + oldest + "_" + arch}, nil
}

// loadBuildVersion is LC_BUILD_VERSION of Mach-O.
const loadBuildVersion = 0x32
