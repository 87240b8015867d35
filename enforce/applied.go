package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// Applied is what is in force: the file lanes.json beside the journal.
type Applied struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	BootID     string         `json:"bootID"`
	Placement  plan.Placement `json:"placement"`
	// Levels has, by lane, the kind of partition that it got, if the kernel did not grant the wanted kind.
	Levels   map[string]string   `json:"partitions,omitempty"`
	Refused  []RefusedStep       `json:"refused,omitempty"`
	Attached []attached.Workload `json:"attached,omitempty"`
	// Returning are workloads that a change of their lane takes out and will bring in again.
	Returning []attached.Workload `json:"returning,omitempty"`
	Runs      map[string]Run      `json:"runs,omitempty"` // by lane: the isolane run
	// Interrupts are those that existed before the lanes. Others have come since.
	Interrupts []int `json:"interrupts,omitempty"`
	// NewInterrupts are the CPU masks that new interrupts got earlier, without the one in force.
	NewInterrupts []string `json:"newInterrupts,omitempty"`
}

// State returns the text of the record in dir of what is in force, "" if there is none. Comparing two texts
// shows whether the record has changed.
func State(dir string) (string, error) {
	data, err := journal.ReadState(dir, stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(data), err
}

// readApplied parses state, which State has read from dir. The result is empty if state is empty or from
// before a reboot, because a reboot undoes the lanes.
func readApplied(dir, state string) (Applied, error) {
	none := Applied{APIVersion: plan.APIVersion, Kind: appliedKind}
	boot, err := journal.BootID()
	if err != nil {
		return none, err
	}
	none.BootID = boot
	if state == "" {
		return none, nil
	}
	var a, of Applied
	strict := json.NewDecoder(strings.NewReader(state))
	strict.DisallowUnknownFields()
	err = strict.Decode(&a)
	of = a // even if another version wrote it
	if (err == nil || json.Unmarshal([]byte(state), &of) == nil) && of.BootID != boot {
		return none, nil
	}
	if err == nil && (a.APIVersion != plan.APIVersion || a.Kind != appliedKind) {
		err = fmt.Errorf("found %q %q, expected %q %q", a.APIVersion, a.Kind, plan.APIVersion, appliedKind)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w: if another version of isolane has written it, release the lanes by "+
			"that one", filepath.Join(dir, stateFile), err)
	}
	// The file may come from elsewhere, and its names become paths.
	for _, at := range slices.Concat(a.Attached, a.Returning) {
		if !strings.HasPrefix(at.Journal, attached.Prefix) || strings.Contains(at.Journal, "/") {
			return none, fmt.Errorf("%s: attached journal %q: isolane did not write that: keep the file elsewhere, "+
				"then isolane recover --adopt", filepath.Join(dir, stateFile), at.Journal)
		}
	}
	if err = a.Placement.Validate(); err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return a, err
}

func (l *Lanes) store(a Applied) error {
	if len(a.Placement.Lanes) == 0 {
		return journal.RemoveState(l.dir, stateFile)
	}
	a.NewInterrupts = l.masksBefore(a.NewInterrupts)
	data, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		return err
	}
	return journal.WriteState(l.dir, stateFile, append(data, '\n'))
}

// storeAsApplied stores a as what is in force from now on.
func (l *Lanes) storeAsApplied(a Applied) error {
	err := l.store(a)
	if err == nil {
		l.Applied = a
	}
	return err
}

// Lane returns the lane in force with this name, or a *NoLaneError.
func (a Applied) Lane(name string) (plan.Lane, error) {
	if l, ok := a.Placement.Lane(name); ok {
		return l, nil
	}
	return plan.Lane{}, &NoLaneError{name, a.Names()}
}

// Netns returns the network namespace of the running workload to which the path of a lane leads
// (netdev.OfProcess), or "" if it leads to the lane's own namespace.
func (a Applied) Netns(lane string) string {
	for _, at := range a.Attached {
		if at.Lane == lane && at.Netns != "" {
			return at.Netns
		}
	}
	return ""
}

// Names returns the names of the lanes in force.
func (a Applied) Names() (names []string) {
	for _, l := range a.Placement.Lanes {
		names = append(names, l.Name)
	}
	return names
}

// NoLaneError says that a lane is not in force.
type NoLaneError struct {
	Name    string
	InForce []string
}

func (e *NoLaneError) Error() string {
	if len(e.InForce) == 0 {
		return fmt.Sprintf("there is no lane %q: none is in force", e.Name)
	}
	return fmt.Sprintf("there is no lane %q: in force are %s", e.Name, strings.Join(e.InForce, ", "))
}
