package host

import (
	"archive/tar"
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
	"time"

	"github.com/klauspost/compress/zstd"
)

// Recorder is a file system that remembers what is read of another one. Save writes that as an
// archive, in which the same readings give the same results.
type Recorder struct {
	root fs.FS
	mu   sync.Mutex
	seen map[string]entry // by path
}

// entry is a file that was read, a link, or a name that a directory listed.
type entry struct {
	mode fs.FileMode
	data []byte
}

// Record returns a recorder of root.
func Record(root fs.FS) *Recorder {
	return &Recorder{root: root, seen: map[string]entry{}}
}

func (r *Recorder) note(name string, e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.seen[name]; !ok || before.mode.IsDir() {
		r.seen[name] = e
	}
}

// Open opens a file, and remembers the whole of it.
func (r *Recorder) Open(name string) (fs.File, error) {
	data, err := r.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return archive{&node{name: ".", mode: fs.ModeDir, children: map[string]*node{
		"f": {name: path.Base(name), mode: 0o444, data: data}}}}.Open("f")
}

// ReadFile reads a file.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLines))
	if err == nil {
		r.note(name, entry{mode: 0o444, data: data})
	}
	return data, err
}

// ReadDir lists a directory. What it lists is remembered by name only.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.root, name)
	if err == nil {
		r.note(name, entry{mode: fs.ModeDir | 0o555})
	}
	for _, e := range entries {
		child := path.Join(name, e.Name())
		if e.Type().IsRegular() {
			continue // counts only if it is read
		}
		r.note(child, entry{mode: fs.ModeDir | 0o555})
	}
	return entries, err
}

// ReadLink returns where a link points.
func (r *Recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.root, name)
	if err == nil {
		r.note(name, entry{mode: fs.ModeSymlink | 0o777, data: []byte(target)})
	}
	return target, err
}

// Lstat describes a file without following it.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.root, name) }

// Save writes what was read to a tar, compressed by the name of the file: .gz, .tgz, .zst or plain.
// The file appears complete or not at all.
func (r *Recorder) Save(file string) error {
	f, err := os.CreateTemp(path.Dir(file), ".snapshot-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = r.write(f, file); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	return err
}

func (r *Recorder) write(w io.Writer, name string) (err error) {
	switch {
	case strings.HasSuffix(name, ".gz"), strings.HasSuffix(name, ".tgz"):
		z := gzip.NewWriter(w)
		defer func() { err = errors.Join(err, z.Close()) }()
		w = z
	case strings.HasSuffix(name, ".zst"):
		z, zerr := zstd.NewWriter(w)
		if zerr != nil {
			return zerr
		}
		defer func() { err = errors.Join(err, z.Close()) }()
		w = z
	}
	t := tar.NewWriter(w)
	now := time.Now().Truncate(time.Second)
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		e := r.seen[name]
		h := tar.Header{Name: name, Mode: int64(e.mode.Perm()), ModTime: now, Typeflag: tar.TypeReg,
			Size: int64(len(e.data))}
		switch {
		case e.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		case e.mode.Type() == fs.ModeSymlink:
			h.Typeflag, h.Linkname, h.Size, e.data = tar.TypeSymlink, string(e.data), 0, nil
		}
		if err = t.WriteHeader(&h); err == nil {
			_, err = t.Write(e.data)
		}
		if err != nil {
			return err
		}
	}
	return t.Close()
}
