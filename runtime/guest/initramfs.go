package guest

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// The guest's first program, which is this one, and what it reads there.
const (
	initPath    = "/init"
	commandFile = "/command.json"
)

// initramfs writes the archive that the kernel unpacks into its memory: this program as the first one,
// programs with their libraries, the command, and other files by their names there.
func initramfs(ctx context.Context, to string, c command, programs []string, other map[string]string) (
	err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{initPath: self}
	for _, program := range programs {
		files[program] = program
	}
	maps.Copy(files, other)
	for _, program := range append(programs, self, other[modprobe]) {
		if program == "" {
			continue
		}
		libraries, lerr := librariesOf(ctx, program)
		if lerr != nil {
			return lerr
		}
		for _, l := range libraries {
			files[l] = l
		}
	}
	command, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	a := &archive{w: bufio.NewWriter(f), made: map[string]bool{"/": true}}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp"} {
		a.directory(dir)
	}
	for _, p := range c.Programs {
		if p.Folder != "" {
			a.directory(p.Folder)
		}
	}
	a.file(commandFile, 0o644, int64(len(command)), strings.NewReader(string(command)))
	for _, at := range slices.Sorted(maps.Keys(files)) {
		a.copy(at, files[at])
	}
	return a.close(f)
}

// librariesOf returns the files that a program is linked with, and the loader; none for a static program.
func librariesOf(ctx context.Context, program string) ([]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("%s: expected a program in machine code: %w", program, err)
	}
	defer f.Close()
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, nil
	}
	out, err := child(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	return listed(string(out)), nil
}

// listed returns the files in the output of ldd(1): "libc.so.6 => /lib/libc.so.6 (0x…)".
func listed(text string) (all []string) {
	for line := range strings.Lines(text) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				all = append(all, word)
			}
		}
	}
	return all
}

// archive writes the newc format of cpio (Documentation/driver-api/early-userspace/buffer-format.rst). It
// keeps the first error.
type archive struct {
	w    *bufio.Writer
	made map[string]bool
	n    int
	err  error
}

func (a *archive) directory(name string) {
	if a.made[name] {
		return
	}
	a.made[name] = true
	a.directory(path.Dir(name))
	const isDirectory = 0o040000
	a.record(name, isDirectory|0o755, 0, nil)
}

// copy adds a file of the host under the name at.
func (a *archive) copy(at, from string) {
	f, err := os.Open(from)
	if err != nil {
		a.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.fail(err)
		return
	}
	a.file(at, 0o755, info.Size(), f)
}

func (a *archive) file(name string, mode, size int64, content io.Reader) {
	a.directory(path.Dir(name))
	const isFile = 0o100000
	a.record(name, isFile|mode, size, content)
}

// record writes a header of 13 numbers, the name and the content, each padded to a multiple of 4.
func (a *archive) record(name string, mode, size int64, content io.Reader) {
	if a.err != nil {
		return
	}
	a.n++
	name = strings.TrimPrefix(name, "/") + "\x00"
	// inode, mode, uid, gid, links, mtime, size, device and rdevice, length of the name, no checksum
	_, _ = a.w.WriteString("070701") // a bufio.Writer keeps its error until it is flushed
	for _, n := range []int64{int64(a.n), mode, 0, 0, 1, 0, size, 0, 0, 0, 0, int64(len(name)), 0} {
		fmt.Fprintf(a.w, "%08x", n)
	}
	_, _ = a.w.WriteString(name + fill(110+len(name)))
	if content != nil {
		if _, err := io.CopyN(a.w, content, size); err != nil {
			a.fail(fmt.Errorf("%s: %w", name, err))
		}
	}
	_, err := a.w.WriteString(fill(int(size)))
	a.fail(err)
}

func fill(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// close ends the archive and the file.
func (a *archive) close(f *os.File) error {
	a.record("TRAILER!!!", 0, 0, nil)
	a.fail(a.w.Flush())
	a.fail(f.Close())
	return a.err
}
