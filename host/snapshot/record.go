package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"isolane.dev/isolane/host"
)

// maxFile bounds what is kept of one file. /proc/interrupts of a large machine has some megabytes.
const maxFile = 64 << 20

// Recorder is a file system that keeps what is read from another one. Save writes that to an archive, from
// which the same reads give the same results.
type Recorder struct {
	root fs.FS
	mu   sync.Mutex
	seen map[string]*node // files that were read, links, and names that a directory listed, by path
}

// Record returns a recorder of root.
func Record(root fs.FS) *Recorder {
	return &Recorder{root: root, seen: map[string]*node{}}
}

func (r *Recorder) keep(name string, mode fs.FileMode, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.seen[name]; name != "." && (before == nil || before.IsDir()) {
		r.seen[name] = &node{name: path.Base(name), mode: mode, data: data}
	}
}

// Open opens a file and keeps its whole content.
func (r *Recorder) Open(name string) (fs.File, error) {
	data, err := r.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return opened{bytes.NewReader(data), &node{name: path.Base(name), mode: file, data: data}}, nil
}

// ReadFile reads a file and keeps its content, unless that is confidential.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil && name != host.MachineIDFile {
		r.keep(name, file, data)
	}
	return data, err
}

// ReadDir lists a directory and keeps the names. It keeps the name of a regular file only if the file is
// read, or if the names are all that is read, as in the msi_irqs of a PCI device.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.root, name)
	if err == nil {
		r.keep(name, directory, nil)
	}
	for _, e := range entries {
		if at := path.Join(name, e.Name()); !e.Type().IsRegular() {
			r.keep(at, directory, nil)
		} else if path.Base(name) == "msi_irqs" {
			r.keep(at, file, nil)
		}
	}
	return entries, err
}

// ReadLink returns the target of a link.
func (r *Recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.root, name)
	if err == nil {
		r.keep(name, symlink, []byte(target))
	}
	return target, err
}

// Lstat describes a file without following it.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.root, name) }

// Save writes what was read to a tar archive. The name of the file chooses the compression: .gz, .tgz, .zst,
// or plain. The file appears complete or not at all.
func (r *Recorder) Save(name string) error {
	f, err := os.CreateTemp(path.Dir(name), ".snapshot-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = r.write(f, name); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func (r *Recorder) write(to io.Writer, name string) (err error) {
	switch {
	case strings.HasSuffix(name, ".gz"), strings.HasSuffix(name, ".tgz"):
		z := gzip.NewWriter(to)
		defer func() { err = errors.Join(err, z.Close()) }()
		to = z
	case strings.HasSuffix(name, ".zst"):
		z, zerr := zstd.NewWriter(to)
		if zerr != nil {
			return zerr
		}
		defer func() { err = errors.Join(err, z.Close()) }()
		to = z
	}
	all := newTree()
	for _, at := range slices.Sorted(maps.Keys(r.seen)) {
		all.put(at, r.seen[at].mode, r.seen[at].data)
	}
	archive := tar.NewWriter(to)
	return errors.Join(archive.AddFS(all), archive.Close())
}
