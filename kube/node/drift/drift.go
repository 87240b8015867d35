// Package drift finds what others change of the lanes in force on a node, and puts it back, as isolane agent
// does. It says what is to be told of that, and tells no flood.
package drift

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
)

// Watch watches the lanes of a host.
type Watch struct {
	of    lanes.Options
	guard *guard.Guard // nil while there are no lanes
	none  string       // the record of lanes that has none
	news  news
}

// New returns a Watch of the lanes in force.
func New(of lanes.Options) *Watch { return &Watch{of: of.Complete(), none: "?", news: news{}} }

// Look puts back what others have changed, and returns what is to be told now: a text by the name of the lane
// that it concerns, and under "" what concerns all lanes. It does nothing while somebody changes the lanes.
func (w *Watch) Look(ctx context.Context) (map[string]string, error) {
	err := w.look(ctx)
	return w.news.due(time.Now()), err
}

// Tell has the next Look tell something else of a lane.
func (w *Watch) Tell(lane, text string) { w.news.add(lane, text) }

// Close ends the watch.
func (w *Watch) Close() error {
	if w.guard == nil {
		return nil
	}
	g := w.guard
	w.guard = nil
	return g.Close()
}

func (w *Watch) look(ctx context.Context) error {
	state, err := enforce.State(w.of.Dir)
	if err != nil || w.guard == nil && state == w.none || journal.Busy(w.of.Dir) {
		return err
	}
	if w.guard == nil {
		if w.guard, err = guard.New(w.of.Dir, host.Live(), w.of.Drivers()); err != nil {
			return err
		}
	}
	found, err := w.guard.Check(ctx, true)
	all, werr := w.guard.Watched("")
	if err = errors.Join(err, werr); err != nil {
		return errors.Join(err, w.Close()) // begin anew at the next look
	}
	if len(all.Lanes) == 0 {
		w.none = state
		return w.Close()
	}
	places := map[string][]string{}
	for _, g := range all.Lanes {
		of, werr := w.guard.Watched(g.Lane.Name)
		if werr != nil {
			return werr
		}
		places[g.Lane.Name] = append(of.Groups, g.PartitionDir)
	}
	for _, d := range found {
		// What was neither put back nor is left to somebody waits for the next look. What is no setting is not
		// others' doing: a container has ended.
		if d.Step.Kind == "" || !d.Repaired && d.Note == "" {
			continue
		}
		for _, name := range lanesOf(d, all.Lanes, places) {
			w.news.add(name, describe(d))
		}
	}
	return nil
}

// describe says what is not as the lanes want it, who has set it so, and what has become of it.
func describe(d enforce.Drift) string {
	switch {
	case !d.Repaired:
		return d.Text() + ": " + d.Note
	case d.By != "":
		return d.Text() + ", set by " + d.By + ": put back"
	}
	return d.Text() + ": put back"
}

// lanesOf returns the names of the lanes that a drift concerns, or "" if it concerns all of them alike.
// places are the cgroups of each.
func lanesOf(d enforce.Drift, all []enforce.LaneGroup, places map[string][]string) (names []string) {
	expected, found := cpusOf(d.Step.Target, d.Expected), cpusOf(d.Step.Target, d.Found)
	if m := ofCPU.FindStringSubmatch(d.Step.Target); m != nil {
		id, _ := strconv.Atoi(m[1]) // digits
		found = cpuset.Of(id)
	}
	for _, l := range all {
		inside := slices.ContainsFunc(places[l.Lane.Name], func(dir string) bool {
			return dir != "" && (path.Dir(d.Step.Target) == dir || strings.HasPrefix(d.Step.Target, dir+"/"))
		})
		own := !expected.IsEmpty() && expected.IsSubsetOf(l.Lane.Owned())
		if inside || own || found.Difference(expected).Intersects(l.Lane.Owned()) {
			names = append(names, l.Lane.Name)
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	return names
}

// ofCPU matches the settings of a CPU or a frequency policy, which has the number of its first CPU.
var ofCPU = regexp.MustCompile(`^/sys/devices/system/cpu/(?:cpu|cpufreq/policy)(\d+)/`)

// cpusOf reads a value as CPUs; it has none if it is no list or mask of them.
func cpusOf(target, value string) cpuset.Set {
	parse := cpuset.Parse
	switch base := path.Base(target); {
	case strings.HasSuffix(base, "mask"), strings.HasSuffix(base, "_affinity"),
		strings.HasSuffix(base, "ps_cpus"):
		parse = cpuset.ParseMask
	case path.IsAbs(target) && base != "cpuset.cpus" && !strings.HasSuffix(base, "_list"):
		return cpuset.Set{} // another number
	}
	cpus, err := parse(value)
	if err != nil {
		return cpuset.Set{}
	}
	return cpus
}
