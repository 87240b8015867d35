package lanes

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/mount"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// environment returns the variables that tell a workload about its lane.
func environment(root fs.FS, lane plan.Lane) ([]string, error) {
	relative := func(cpus cpuset.Set) string {
		var places []int
		for i, c := range lane.CPUs.Slice() {
			if cpus.Contains(c) {
				places = append(places, i)
			}
		}
		return cpuset.Of(places...).String()
	}
	env := []string{"ISOLANE_LANE=" + lane.Name, "ISOLANE_CPUS=" + lane.CPUs.String(),
		"ISOLANE_CPUS_RELATIVE=" + relative(lane.CPUs), "ISOLANE_MEMORY_NODES=" + lane.MemoryNodes.String()}
	for role, cpus := range lane.Roles {
		name := "ISOLANE_CPUS_" + strings.ToUpper(strings.ReplaceAll(role, "-", "_"))
		env = append(env, name+"="+cpus.String(), name+"_RELATIVE="+relative(cpus))
	}
	mounts, err := hugepageMounts(root)
	for size, dir := range mounts {
		name := strings.ToUpper(quantity.Bytes(size).String())
		env = append(env, "ISOLANE_HUGEPAGES_"+name+"="+dir)
	}
	slices.Sort(env)
	return env, err
}

// hugepageMounts returns where pages of each size are mounted (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugepageMounts(root fs.FS) (map[uint64]string, error) {
	var wrong error
	found := map[uint64]string{}
	err := mount.Table(root, func(p mount.Point) {
		for _, option := range p.Options {
			size, ok := strings.CutPrefix(option, "pagesize=")
			if !ok || p.Type != "hugetlbfs" {
				continue
			}
			bytes, err := quantity.ParseBytes(strings.TrimSuffix(size, "M") + "Mi")
			if count, giant := strings.CutSuffix(size, "G"); giant {
				bytes, err = quantity.ParseBytes(count + "Gi")
			}
			if err != nil {
				wrong = fmt.Errorf("/proc/mounts: hugetlbfs on %s: %w", p.Dir, err)
			} else if _, earlier := found[uint64(bytes)]; !earlier {
				found[uint64(bytes)] = p.Dir
			}
		}
	})
	return found, errors.Join(err, wrong)
}
