package journal

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// file is the content of a file of /proc, /sys or a cgroup, without the white space at its end.
type file struct{ kernel }

func (file) Check(s Step) error {
	for _, value := range []string{s.Before, s.After} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%s: %q: expected one line of plain text", s.Target, value)
		}
	}
	return check(s.Target)
}

func (f file) Read(_ context.Context, s Step) (string, error) { return f.read(s.Target) }

func (f file) Write(ctx context.Context, s Step, value string) error {
	if base := path.Base(s.Target); value == "" && (base == "cpuset.cpus" || base == "cpuset.mems") {
		return f.inherit(s.Target)
	}
	if f.isolates(s.Target, value) {
		defer f.awake(ctx, path.Dir(s.Target), value)()
	}
	return f.write(s.Target, value)
}

// Restores: the kernel says so where a partition has become invalid, whoever is the cause.
func (file) Restores(s Step, now string) bool {
	return path.Base(s.Target) == "cpuset.cpus.partition" && strings.HasPrefix(now, s.After+" invalid")
}

// attribute is a file of a cgroup of Isolane's. What was empty before goes with its cgroup, so that there is
// nothing to undo: no cpuset that has tasks would let go of its CPUs.
type attribute struct{ file }

func (a attribute) Write(ctx context.Context, s Step, value string) error {
	if value == "" {
		return nil
	}
	return a.file.Write(ctx, s, value)
}

// Check lets a step name only files of cgroups that are Isolane's own.
func (a attribute) Check(s Step) error {
	if err := ownGroup(path.Dir(s.Target)); err != nil {
		return err
	}
	return a.file.Check(s)
}
