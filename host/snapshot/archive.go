// Package snapshot reads and writes archives of a machine's files: the part of /sys and /proc that package
// host and package settings read.
package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Bounds on an archive: a machine with 8,192 CPUs has some hundred thousand files of a few bytes.
const (
	maxArchive = 256 << 20 // bytes of content
	maxEntries = 2 << 20
	maxPath    = 4096
)

// cpuDir exists in each machine.
const cpuDir = "sys/devices/system/cpu"

// Open reads a tar archive into memory and returns the file system of the machine in it: the folder that
// contains sys/devices/system/cpu. The archive is plain, gz, bz2, xz or zst, recognized by its first bytes.
// If it holds several machines, folder must name one; otherwise folder is "" or a folder of the archive.
// Nothing outside the archive is ever read: links that lead out of it lead nowhere.
func Open(file, folder string) (fs.FS, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := read(f)
	if err == nil && folder == "" {
		folder, err = a.machine()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	n, err := a.find(path.Clean(folder), maxLinks)
	if err != nil || !n.IsDir() {
		return nil, fmt.Errorf("%s: there is no folder %q in it", file, folder)
	}
	return tree{n}, nil
}

// decompress looks at the first bytes and not at the name, because files get renamed.
func decompress(f io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	head, _ := in.Peek(6)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(in), nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xz.NewReader(in)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxArchive))
	}
	return in, nil
}

func read(f io.Reader) (tree, error) {
	const expected = "expected a tar (plain, gz, bz2, xz or zst)"
	a := newTree()
	in, err := decompress(f)
	if err != nil {
		return a, fmt.Errorf(expected+": %w", err)
	}
	var size int64
	entries := tar.NewReader(io.LimitReader(in, maxArchive+maxEntries*1024))
	for count := 0; ; count++ {
		entry, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF) && count == 0:
			return a, errors.New(expected + " with files: it has none")
		case errors.Is(err, io.EOF):
			return a, nil
		case err != nil && count == 0:
			return a, fmt.Errorf(expected+": %w", err)
		case err != nil:
			return a, fmt.Errorf("after %d entries: %w", count, err)
		case count == maxEntries:
			return a, fmt.Errorf("more than %d entries: not the snapshot of a machine", maxEntries)
		}
		if size += entry.Size; entry.Size < 0 || size > maxArchive {
			return a, fmt.Errorf("more than %d bytes: not the snapshot of a machine", maxArchive)
		}
		if err := a.add(entry, entries); err != nil {
			return a, err
		}
	}
}

func (t tree) add(entry *tar.Header, content io.Reader) error {
	name := path.Clean(entry.Name)
	if name == "." {
		return nil
	}
	if !fs.ValidPath(name) || len(name) > maxPath {
		return fmt.Errorf("entry %.100q leads out of the archive", entry.Name)
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		t.put(name, directory, nil)
	case tar.TypeReg:
		data, err := contents(entry.Size, content)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.put(name, file, data)
	case tar.TypeSymlink:
		t.put(name, symlink, []byte(entry.Linkname))
	case tar.TypeLink:
		t.put(name, symlink, []byte("/"+path.Clean(entry.Linkname)))
	}
	return nil // devices and pipes are skipped: a machine's description has none
}

// contents reads a file. A large buffer grows only as content arrives, because the stated size may be a lie.
func contents(size int64, from io.Reader) ([]byte, error) {
	data := make([]byte, min(size, 1<<20))
	n, err := io.ReadFull(from, data)
	if err != nil && size > 0 {
		return nil, err
	}
	if size == int64(n) {
		return data, nil
	}
	rest, err := io.ReadAll(from)
	return append(data[:n], rest...), err
}

// machine returns the folder of the only machine in the archive.
func (t tree) machine() (string, error) {
	var found []string
	var walk func(n *node, at string, depth int)
	walk = func(n *node, at string, depth int) {
		if _, err := (tree{n}).find(cpuDir, maxLinks); err == nil {
			found = append(found, at)
			return
		}
		for _, child := range n.list() {
			if child.IsDir() && depth < 6 && child.name != "sys" && child.name != "proc" {
				walk(child, path.Join(at, child.name), depth+1)
			}
		}
	}
	walk(t.root, ".", 0)
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no folder in it has %s: not the snapshot of a machine", cpuDir)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("it holds %d machines: choose one with --root: %s", len(found),
		strings.Join(found, ", "))
}
