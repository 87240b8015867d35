// Package mount reads which file systems are mounted, and where.
package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Point is a mounted file system.
type Point struct {
	Dir     string
	Type    string   // "cgroup2"
	Root    string   // the mounted directory of the file system, "/" for all of it; only Info sets it
	Options []string // of the file system: "cpuset" of cgroups, "pagesize=2M" of hugetlbfs
}

// Table calls use for each mounted file system, in the order of /proc/self/mounts, or of /proc/mounts, which
// archives may have instead (proc_pid_mounts(5)).
func Table(root fs.FS, use func(Point)) error {
	err := each(root, "proc/self/mounts", parseTable, use)
	if errors.Is(err, fs.ErrNotExist) {
		err = each(root, "proc/mounts", parseTable, use)
	}
	return err
}

// Info is like Table, from /proc/self/mountinfo (proc_pid_mountinfo(5)).
func Info(root fs.FS, use func(Point)) error {
	return each(root, "proc/self/mountinfo", parseInfo, use)
}

// OfThread is like Info for the calling thread on this machine, whose mounts may be its own.
func OfThread(use func(Point)) error {
	return each(os.DirFS("/"), "proc/thread-self/mountinfo", parseInfo, use)
}

func each(root fs.FS, name string, parse func(line string) (Point, bool), use func(Point)) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, serr := f.Stat(); serr == nil && !info.Mode().IsRegular() { // a pipe could block forever
		return fmt.Errorf("/%s: expected a regular file, found %s", name, info.Mode().Type())
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if p, ok := parse(lines.Text()); ok {
			use(p)
		}
	}
	if err = lines.Err(); err != nil {
		err = fmt.Errorf("/%s: %w", name, err)
	}
	return err
}

// parseTable parses "device dir type options 0 0".
func parseTable(line string) (Point, bool) {
	f := strings.Fields(line)
	if len(f) < 4 {
		return Point{}, false
	}
	return Point{Dir: unescape(f[1]), Type: f[2], Options: strings.Split(f[3], ",")}, true
}

// parseInfo parses "id parent major:minor root dir options… - type device options".
func parseInfo(line string) (Point, bool) {
	head, tail, _ := strings.Cut(line, " - ")
	h, t := strings.Fields(head), strings.Fields(tail)
	if len(h) < 5 || len(t) < 3 {
		return Point{}, false
	}
	return Point{Dir: unescape(h[4]), Type: t[0], Root: unescape(h[3]), Options: strings.Split(t[2], ",")}, true
}

// unescape decodes the kernel's escapes for white space in a path.
func unescape(path string) string {
	if !strings.Contains(path, `\`) { // as nearly all of hundreds of paths
		return path
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
