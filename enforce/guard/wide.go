package guard

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host/cgroup"
)

// wide returns the cgroups that have had CPUs of lanes at this look and the one before, and are no lanes,
// where only cpusets keep others off: with cgroup v1, and beside lanes that are Alone. They were made since
// the plan, and widened since or never narrowed: who makes a cgroup below one with the lanes' CPUs has a
// moment to narrow it.
func (g *Guard) wide() string {
	var lanes []string
	alone := false
	for _, at := range g.lanes.Attached {
		if at.Group != "" {
			lanes, alone = append(lanes, at.Group), alone || at.Alone && at.Own
		}
	}
	var now, still []string
	mounts, err := cgroup.Mounted(g.root)
	cpus := g.lanes.Placement.CPUs()
	if top, v2 := mounts.Cpuset(); err == nil && top != "" && (alone || !v2) && !cpus.IsEmpty() {
		now = widened(g.root, top, v2, lanes, cpus)
	}
	g.newlyWide = nil
	for _, dir := range now {
		if slices.Contains(g.wideBefore, dir) {
			still = append(still, dir)
		} else {
			g.newlyWide = append(g.newlyWide, dir)
		}
	}
	g.wideBefore = now
	return strings.Join(still, " ")
}

// isJustMade reports whether a drift is of a cgroup that a new plan has found, and that has had the lanes'
// CPUs at one look only, or of one below it: somebody is making it, and is about to narrow it.
func (g *Guard) isJustMade(d enforce.Drift) bool {
	return slices.ContainsFunc(g.newlyWide, func(dir string) bool {
		return strings.HasPrefix(d.Step.Target, dir+"/")
	}) && !slices.ContainsFunc(g.planned, d.Step.Same)
}

// widened returns the cgroups below dir that have some of these CPUs, and are neither lanes nor above them. A
// cgroup's CPUs are among those of the one above it, so it does not look below those without them.
func widened(root fs.FS, dir string, v2 bool, lanes []string, cpus cpuset.Set) (all []string) {
	file := map[bool]string{false: "cpuset.cpus", true: "cpuset.cpus.effective"}[v2]
	entries, _ := fs.ReadDir(root, dir[1:]) // none if it has gone
	for _, e := range entries {
		below := path.Join(dir, e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), change.GroupPrefix) || slices.Contains(lanes, below) {
			continue
		}
		has, err := cpuset.Read(root, path.Join(below, file)[1:])
		switch {
		case err != nil || !has.Intersects(cpus): // gone, or off
		case slices.ContainsFunc(lanes, func(l string) bool { return strings.HasPrefix(l, below+"/") }):
			all = append(all, widened(root, below, v2, lanes, cpus)...)
		default:
			all = append(all, below)
		}
	}
	return all
}
