package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// maxLinks is how many links are followed on the way to one file.
const maxLinks = 40

// Modes of nodes.
const (
	directory = fs.ModeDir | 0o555
	file      = fs.FileMode(0o444)
	symlink   = fs.ModeSymlink | 0o777
)

// tree is a file system in memory. It follows links within itself.
type tree struct{ root *node }

func newTree() tree { return tree{&node{name: ".", mode: directory}} }

// node is a file, a directory or a link, and its own fs.FileInfo.
type node struct {
	name     string
	mode     fs.FileMode
	data     []byte // of a link: its target
	children map[string]*node
}

func (n *node) Name() string       { return n.name }
func (n *node) Size() int64        { return int64(len(n.data)) }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Time{} }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

// list returns the children by name.
func (n *node) list() []*node {
	children := make([]*node, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		children = append(children, n.children[name])
	}
	return children
}

// opened is an open node.
type opened struct {
	*bytes.Reader
	node *node
}

func (o opened) Stat() (fs.FileInfo, error) { return o.node, nil }
func (o opened) Close() error               { return nil }

// follow finds a file and follows links. op is the operation in errors.
func (t tree) follow(op, name string) (*node, error) {
	n, err := t.find(name, maxLinks)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Open opens a file or a directory, whose entries ReadDir lists.
func (t tree) Open(name string) (fs.File, error) {
	n, err := t.follow("open", name)
	if err != nil {
		return nil, err
	}
	return opened{bytes.NewReader(n.data), n}, nil
}

// ReadFile returns the content of a file.
func (t tree) ReadFile(name string) ([]byte, error) {
	n, err := t.follow("read", name)
	if err == nil && n.IsDir() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory")}
	}
	if err != nil {
		return nil, err
	}
	return n.data, nil
}

// ReadDir lists a directory.
func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.follow("readdir", name)
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for _, child := range n.list() {
		entries = append(entries, fs.FileInfoToDirEntry(child))
	}
	return entries, nil
}

// lstat finds a file without following it.
func (t tree) lstat(op, name string) (*node, error) {
	dir, err := t.follow(op, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if n := dir.children[path.Base(name)]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// ReadLink returns the target of a link.
func (t tree) ReadLink(name string) (string, error) {
	n, err := t.lstat("readlink", name)
	if err == nil && n.mode != symlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return "", err
	}
	return string(n.data), nil
}

// Lstat describes a file without following it.
func (t tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.lstat("lstat", name)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// find finds a file and follows at most links links. An absolute link begins at the root of the tree.
func (t tree) find(name string, links int) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	at, rest := t.root, name
	for done := 0; rest != "" && rest != "."; {
		first, after, more := strings.Cut(rest, "/")
		next := at.children[first]
		if next == nil {
			return nil, fs.ErrNotExist
		}
		if next.mode == symlink {
			if links == 0 {
				return nil, errors.New("too many links")
			}
			target := string(next.data)
			if !path.IsAbs(target) {
				target = path.Join(name[:done], target)
			}
			target = strings.TrimPrefix(path.Join(target, after), "/")
			return t.find(target, links-1)
		}
		done += len(first)
		if more {
			done++
		}
		at, rest = next, after
	}
	return at, nil
}

// put adds a node and the folders above it. If a name is added twice the later one counts, as in tar.
func (t tree) put(name string, mode fs.FileMode, data []byte) {
	at := t.root
	for rest := name; ; {
		first, after, more := strings.Cut(rest, "/")
		next := at.children[first]
		if next == nil || more && !next.IsDir() {
			next = &node{name: strings.Clone(first), mode: directory}
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
