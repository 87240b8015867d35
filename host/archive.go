package host

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
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Bounds on an archive: a machine with 8,192 CPUs has some hundred thousand files of a few bytes.
const (
	maxArchive = 256 << 20 // bytes of content
	maxEntries = 2 << 20
	maxPath    = 4096
)

// OpenArchive reads a tar (plain, gz, bz2, xz or zst, told apart by their first bytes) into memory
// and returns the file system of the machine in it: the folder that contains sys/devices/system/cpu.
// An archive may hold several machines; then folder says which, and must be "" or a folder of the
// archive. Nothing outside the archive is ever read: links that lead out of it lead nowhere.
func OpenArchive(file, folder string) (fs.FS, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := readArchive(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if folder == "" {
		if folder, err = a.machine(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	n, err := a.find(path.Clean(folder), 40)
	if err != nil || !n.IsDir() {
		return nil, fmt.Errorf("%s: there is no folder %q in it", file, folder)
	}
	return archive{n}, nil
}

// decompress looks at the first bytes, not at the name: customers rename files.
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

func readArchive(f io.Reader) (archive, error) {
	a := archive{&node{name: ".", mode: fs.ModeDir | 0o555}}
	in, err := decompress(f)
	if err != nil {
		return a, fmt.Errorf("expected a tar (plain, gz, bz2, xz or zst): %w", err)
	}
	var size int64
	entries := tar.NewReader(io.LimitReader(in, maxArchive+maxEntries*1024))
	for count := 0; ; count++ {
		entry, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF) && count == 0:
			return a, errors.New("expected a tar (plain, gz, bz2, xz or zst) with files: it has none")
		case errors.Is(err, io.EOF):
			return a, nil
		case err != nil && count == 0:
			return a, fmt.Errorf("expected a tar (plain, gz, bz2, xz or zst): %w", err)
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

// machine returns the folder of the only machine in the archive.
func (a archive) machine() (string, error) {
	var found []string
	var walk func(n *node, at string, depth int)
	walk = func(n *node, at string, depth int) {
		if _, err := (archive{n}).find(cpuDir, 40); err == nil {
			found = append(found, at)
			return
		}
		for _, name := range n.names() {
			if child := n.children[name]; child.IsDir() && depth < 6 && name != "sys" && name != "proc" {
				walk(child, path.Join(at, name), depth+1)
			}
		}
	}
	walk(a.root, ".", 0)
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no folder in it has %s: not the snapshot of a machine", cpuDir)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("it holds %d machines: choose one with --root: %s", len(found),
		strings.Join(found, ", "))
}

// archive is a tar as a file system in memory. It follows links within itself.
type archive struct{ root *node }

// node is a file, a directory or a link, and its own fs.FileInfo.
type node struct {
	name     string
	mode     fs.FileMode
	data     []byte // of a link: where it points
	children map[string]*node
}

func (n *node) Name() string       { return n.name }
func (n *node) Size() int64        { return int64(len(n.data)) }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Time{} }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

func (n *node) names() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// opened is an open node.
type opened struct {
	*bytes.Reader
	node *node
}

func (o opened) Stat() (fs.FileInfo, error) { return o.node, nil }
func (o opened) Close() error               { return nil }

// Open opens a file or a directory, whose entries ReadDir lists.
func (a archive) Open(name string) (fs.File, error) {
	n, err := a.find(name, 40)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return opened{bytes.NewReader(n.data), n}, nil
}

// ReadFile returns the content of a file.
func (a archive) ReadFile(name string) ([]byte, error) {
	n, err := a.find(name, 40)
	if err == nil && n.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return n.data, nil
}

// ReadDir lists a directory.
func (a archive) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := a.find(name, 40)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, child := range n.names() {
		entries = append(entries, fs.FileInfoToDirEntry(n.children[child]))
	}
	return entries, nil
}

// ReadLink returns where a link points.
func (a archive) ReadLink(name string) (string, error) {
	dir, err := a.find(path.Dir(name), 40)
	if err == nil {
		if n := dir.children[path.Base(name)]; n != nil && n.mode.Type() == fs.ModeSymlink {
			return string(n.data), nil
		}
		err = fs.ErrNotExist
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
}

// Lstat describes a file without following it.
func (a archive) Lstat(name string) (fs.FileInfo, error) {
	dir, err := a.find(path.Dir(name), 40)
	if err == nil {
		if n := dir.children[path.Base(name)]; n != nil {
			return n, nil
		}
		err = fs.ErrNotExist
	}
	return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
}

// find follows at most so many links. The root of an absolute link is the archive's.
func (a archive) find(name string, links int) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	at, rest := a.root, name
	for done := 0; rest != "" && rest != "."; {
		first, after, more := strings.Cut(rest, "/")
		next := at.children[first]
		if next == nil {
			return nil, fs.ErrNotExist
		}
		if next.mode.Type() == fs.ModeSymlink {
			if links == 0 {
				return nil, errors.New("too many links")
			}
			target := string(next.data)
			if !path.IsAbs(target) {
				target = path.Join(name[:done], target)
			}
			target = strings.TrimPrefix(path.Join(target, after), "/")
			return a.find(target, links-1)
		}
		done += len(first)
		if more {
			done++
		}
		at, rest = next, after
	}
	return at, nil
}

// put adds a node and the folders above it. The later of two entries of one name counts, as in tar.
func (a archive) put(name string, mode fs.FileMode, data []byte) {
	at := a.root
	for rest := name; ; {
		first, after, more := strings.Cut(rest, "/")
		next := at.children[first]
		if next == nil || more && !next.IsDir() {
			next = &node{name: strings.Clone(first), mode: fs.ModeDir | 0o555}
			if at.children == nil {
				at.children = map[string]*node{}
			}
			at.children[next.name] = next
		}
		if !more {
			if !mode.IsDir() {
				next.mode, next.data, next.children = mode, data, nil
			}
			return
		}
		at, rest = next, after
	}
}

func (a archive) add(entry *tar.Header, content io.Reader) error {
	name := path.Clean(entry.Name)
	if name == "." {
		return nil
	}
	if !fs.ValidPath(name) || len(name) > maxPath {
		return fmt.Errorf("entry %.100q leads out of the archive", entry.Name)
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		a.put(name, fs.ModeDir|0o555, nil)
	case tar.TypeReg:
		data := make([]byte, min(entry.Size, 1<<20))
		n, err := io.ReadFull(content, data)
		if err != nil && entry.Size > 0 {
			return fmt.Errorf("%s: %w", name, err)
		}
		data = data[:n]
		if entry.Size > int64(n) { // a large file grows as its content arrives
			rest, err := io.ReadAll(content)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			data = append(data, rest...)
		}
		a.put(name, 0o444, data)
	case tar.TypeSymlink:
		a.put(name, fs.ModeSymlink|0o777, []byte(entry.Linkname))
	case tar.TypeLink:
		a.put(name, fs.ModeSymlink|0o777, []byte("/"+path.Clean(entry.Linkname)))
	}
	return nil // devices, pipes: a machine's description has none
}
