package enforce

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// contents looks at the same files over and over: each stays open, so that a look opens nothing. The kernel
// makes their text anew for each reading from the beginning.
type contents struct {
	root   fs.FS
	files  map[string]fs.File
	most   int // of files that stay open: half of what this process may have
	buffer [4096]byte
}

func newContents(root fs.FS) *contents {
	c := &contents{root: root, files: map[string]fs.File{}}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		c.most = int(min(limit.Cur/2, 1<<16))
	}
	return c
}

// stand says whether a file has what a step wrote. False also where that is not known: then the step is asked.
func (c *contents) stand(s journal.Step) bool {
	if s.Kind != "file" && s.Kind != "attribute" {
		return false
	}
	f, known := c.files[s.Target]
	if !known {
		if len(c.files) >= c.most {
			return false
		}
		var err error
		if f, err = c.root.Open(strings.TrimPrefix(s.Target, "/")); err != nil {
			return false
		}
		c.files[s.Target] = f
	}
	at, ok := f.(io.ReaderAt)
	if !ok {
		return false
	}
	n, err := at.ReadAt(c.buffer[:], 0)
	if errors.Is(err, io.EOF) && string(bytes.TrimRight(c.buffer[:n], " \t\n")) == s.After {
		return true
	}
	_ = f.Close() // it may be of an interrupt or a cgroup that has gone, and come back
	delete(c.files, s.Target)
	return false
}

func (c *contents) close() {
	for _, f := range c.files {
		_ = f.Close() // only read
	}
}
