package guard

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// contents reads the same files repeatedly. It keeps each one open, which saves opening it again: the kernel
// makes the text anew for each read from the beginning.
type contents struct {
	root    fs.FS
	files   map[string]fs.File
	maxOpen int // how many files may stay open: half of this process's limit
	buffer  [4096]byte
}

func newContents(root fs.FS) *contents {
	c := &contents{root: root, files: map[string]fs.File{}}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		c.maxOpen = int(min(limit.Cur/2, 1<<16))
	}
	return c
}

// equals reports whether a file has this text. It returns false if it does not know; then the caller asks the
// step's operation.
func (c *contents) equals(file, text string) bool {
	f, known := c.files[file]
	if !known {
		if len(c.files) >= c.maxOpen {
			return false
		}
		var err error
		if f, err = c.root.Open(strings.TrimPrefix(file, "/")); err != nil {
			return false
		}
		c.files[file] = f
	}
	at, ok := f.(io.ReaderAt)
	if !ok {
		return false
	}
	n, err := at.ReadAt(c.buffer[:], 0)
	if errors.Is(err, io.EOF) && string(bytes.TrimRight(c.buffer[:n], " \t\n")) == text {
		return true
	}
	_ = f.Close() // it may belong to an interrupt or cgroup that has gone and come back
	delete(c.files, file)
	return false
}

func (c *contents) close() {
	for _, f := range c.files {
		_ = f.Close() // it was only read
	}
}
