// Package fold is a wrapper of runc for nodes with an invented topology: it records which CPUs and memory
// nodes a container was to get, and gives runc ones that exist.
package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// Names in a folder: Runc is the wrapper, Real the wrapped program, and Asked has the requests, one a line.
const (
	Runc  = "runc-fold"
	Real  = "runc"
	Asked = "asked.json"
)

// Request is what a container was to get. Empty lists are not set.
type Request struct {
	Command   string // create or update
	Container string
	CPUs      string
	Mems      string
}

// Run becomes runc, with CPUs that exist.
func Run(args []string) error {
	dir := filepath.Dir(args[0])
	if err := fold(dir, args, os.Stdin); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	real := filepath.Join(dir, Real)
	return fmt.Errorf("%s: %w", real, unix.Exec(real, append([]string{real}, args[1:]...), os.Environ()))
}

func fold(dir string, args []string, in io.Reader) error {
	container := args[len(args)-1]
	switch {
	case slices.Contains(args, "create"):
		i := slices.Index(args, "--bundle")
		if i < 0 || i+1 >= len(args) {
			return fmt.Errorf("create: expected --bundle, got %q", args[1:])
		}
		file := filepath.Join(args[i+1], "config.json")
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		data, err = change(dir, Request{Command: "create", Container: container}, data, "linux", "resources")
		if err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o644)
	case slices.Contains(args, "update"):
		if !slices.Contains(args, "--resources=-") {
			return fmt.Errorf("update: expected --resources=-, got %q", args[1:])
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		data, err = change(dir, Request{Command: "update", Container: container}, data)
		if err != nil {
			return err
		}
		return input(data)
	}
	return nil
}

// input makes data the standard input of this process, and of the program that it becomes.
func input(data []byte) error {
	fd, err := unix.MemfdCreate("resources", 0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "resources")
	if _, err = file.Write(data); err != nil {
		return err
	}
	if _, err = file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unix.Dup2(fd, 0)
}

// change records what the resources at a path of a JSON document ask for, and returns the document with what
// exists.
func change(dir string, r Request, document []byte, path ...string) ([]byte, error) {
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // some do not fit a float64
	if err := decoder.Decode(&all); err != nil {
		return nil, err
	}
	at := all
	for _, key := range append(path, "cpu") {
		at, _ = at[key].(map[string]any) // nil if it does not exist
	}
	r.CPUs, _ = at["cpus"].(string)
	r.Mems, _ = at["mems"].(string)
	for key, asked := range map[string]string{"cpus": r.CPUs, "mems": r.Mems} {
		if asked == "" {
			continue
		}
		exist, err := allowed(key)
		if err == nil {
			at[key], err = onto(asked, exist)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := note(filepath.Join(dir, Asked), r); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// allowed returns the CPUs or memory nodes that this process may use.
func allowed(key string) ([]int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	name := map[string]string{"cpus": "Cpus_allowed_list:", "mems": "Mems_allowed_list:"}[key]
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, name); ok {
			set, err := cpuset.Parse(strings.TrimSpace(list))
			return set.List(), err
		}
	}
	return nil, fmt.Errorf("/proc/self/status: expected %s", name)
}

// onto folds a list onto what exists.
func onto(list string, exist []int) (string, error) {
	asked, err := cpuset.Parse(list)
	var folded []int
	for _, id := range asked.List() {
		folded = append(folded, exist[id%len(exist)])
	}
	return cpuset.New(folded...).String(), err
}

func note(file string, r Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
