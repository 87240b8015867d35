package knob

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// View is a host as it was before Isolane changed it. Knobs plan from it, so the same placement always gives
// the same steps, whatever is in force.
type View struct {
	Root         fs.FS                // shows the values from before Isolane
	Host         host.Host            // read from Root
	valuesBefore map[[2]string]string // the values before, by kind and target of the steps
	lanes        cpuset.Set           // the CPUs of lanes that are in force
	// Levels are the kinds of partition that the kernel has granted, by lane or group, if not those asked for.
	Levels map[string]string
	// Attached are cgroups of others whose processes have been moved to a lane.
	Attached []string
	// Own are the cgroups of workloads that hold their lane, by lane (cgroup v2).
	Own map[string]string
	// Alone are the lanes among Own that are no partitions: only the cpusets of others keep their CPUs free.
	Alone []string
}

// Before returns the view of a host on which steps have been done. It has no Host yet.
func Before(root fs.FS, ops map[string]journal.Op, done []journal.Step) View {
	v := View{valuesBefore: map[[2]string]string{}}
	files := map[string]string{}
	for _, s := range done {
		v.valuesBefore[[2]string{s.Kind, s.Target}] = s.Before
		op, isFile := ops[s.Kind].(interface{ File(s journal.Step) string })
		with, depends := ops[s.Kind].(interface{ UndoneWithOther(s journal.Step) bool })
		if isFile && op.File(s) != "" && (!depends || !with.UndoneWithOther(s)) {
			file := strings.TrimPrefix(op.File(s), "/")
			files[file] = s.Before
			if path.Base(file) == "nr_hugepages" { // the value has no surplus pages
				files[path.Join(path.Dir(file), "surplus_hugepages")] = "0"
			}
		}
	}
	v.Root = earlierFS{root, files}
	return v
}

// SetHost sets the host. It marks what lanes own as usable and free, so that they can be placed there again.
func (v *View) SetHost(h host.Host, placed plan.Placement) {
	v.Host, v.lanes = h, placed.CPUs()
	v.Host.CPUs = slices.Clone(h.CPUs)
	usable := placed.CPUs().Union(placed.Housekeeping)
	for i, c := range v.Host.CPUs {
		if usable.Contains(c.ID) && c.Allowed != nil {
			allowed := true
			v.Host.CPUs[i].Allowed = &allowed
		}
	}
	v.Host.PCIDevices = slices.Clone(h.PCIDevices)
	for i, d := range v.Host.PCIDevices {
		if slices.ContainsFunc(placed.Lanes, func(l plan.Lane) bool { return l.HasFunction(d.Address) }) {
			v.Host.PCIDevices[i].InUse = ""
		}
	}
}

// cpusBefore returns the CPUs that the target of a step had before; if no such step was done, now.
func (v View) cpusBefore(kind, target string, now cpuset.Set) cpuset.Set {
	if set, is := v.recordedBefore(kind, target); is {
		return set
	}
	return now
}

// recordedBefore returns the CPUs that a step has recorded as those before it, if there is such a step.
func (v View) recordedBefore(kind, target string) (cpus cpuset.Set, is bool) {
	list, is := v.valuesBefore[[2]string{kind, target}]
	cpus, err := cpuset.Parse(list)
	return cpus, is && err == nil
}

// earlierFS is a file system in which some files have their earlier content.
type earlierFS struct {
	fs.FS
	files map[string]string
}

func (b earlierFS) ReadFile(name string) ([]byte, error) {
	if text, ok := b.files[name]; ok {
		return []byte(text + "\n"), nil
	}
	return fs.ReadFile(b.FS, name)
}

func (b earlierFS) Open(name string) (fs.File, error) {
	text, ok := b.files[name]
	if !ok {
		return b.FS.Open(name)
	}
	return &earlierFile{Reader: bytes.NewReader([]byte(text + "\n")), name: path.Base(name)}, nil
}

// Live has what is before a live machine read as one.
func (b earlierFS) Live() bool { return host.IsLive(b.FS) }

func (b earlierFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(b.FS, name) }
func (b earlierFS) ReadLink(name string) (string, error)       { return fs.ReadLink(b.FS, name) }
func (b earlierFS) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(b.FS, name) }

// Lstat implements fs.ReadLinkFS.
func (b earlierFS) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(b.FS, name) }

// earlierFile is an open file with such a content.
type earlierFile struct {
	*bytes.Reader
	name string
}

func (c *earlierFile) Stat() (fs.FileInfo, error) { return earlierInfo{c}, nil }
func (*earlierFile) Close() error                 { return nil }

type earlierInfo struct{ *earlierFile }

func (i earlierInfo) Name() string     { return i.name }
func (earlierInfo) Mode() fs.FileMode  { return 0o444 }
func (earlierInfo) ModTime() time.Time { return time.Time{} }
func (earlierInfo) IsDir() bool        { return false }
func (earlierInfo) Sys() any           { return nil }

// readMask reads a cpumask; ok is false where there is none.
func readMask(root fs.FS, name string) (mask cpuset.Set, text string, ok bool) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return mask, "", false
	}
	text = trim(data)
	mask, err = cpuset.ParseMask(text)
	return mask, text, err == nil
}

// resolve returns the target of a link in /sys/class, because steps name files without links on the way.
func resolve(root fs.FS, name string) (string, bool) {
	target, err := fs.ReadLink(root, name)
	if err != nil {
		return "", false
	}
	return path.Join(path.Dir(name), target), true
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, strings.TrimPrefix(name, "/"))
	return err == nil
}
