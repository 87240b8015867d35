package agent

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/audit/rules"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/version"
)

// renewLease tells the hub that this host is alive.
func (a *Agent) renewLease(ctx context.Context) (err error) {
	s := a.server
	s.lease, err = s.renewal.Renew(ctx, s.core, a.joined.Name, s.lease)
	return err
}

// untilPulse returns how long to wait until the Lease is renewed again.
func (a *Agent) untilPulse() time.Duration {
	if a.server == nil {
		return sites.Renewal(0).Next()
	}
	return a.server.renewal.Next()
}

// changedHere reports whether the hub must be told now about a change here: people also put lanes in force,
// and take pages and devices away.
func (a *Agent) changedHere(ctx context.Context) bool {
	l, err := lanes.Look(a.o.Lanes)
	if err != nil {
		return true // the report says why
	}
	room, err := l.Free()
	if err != nil || room.CPUs.String() != a.free {
		return true
	}
	if time.Since(a.looked) < a.pause() {
		return false
	}
	d, err := a.look(ctx, l)
	a.seen = nil
	switch {
	case err != nil:
		a.looked = time.Time{} // so that the report looks again, and says why
	case a.mustSend(d, time.Since(a.told)):
		a.seen = &d
	default:
		return false
	}
	return true
}

// report tells the hub news of this host and its Instances. Looking at the host takes long, so report puts it
// off, for a minute at most, while the hub is about to confirm something or something begins.
func (a *Agent) report(ctx context.Context, f desired.Findings) error {
	l, err := lanes.Look(a.o.Lanes)
	if err == nil {
		err = a.reportInstances(ctx, l, f)
	}
	switch busy := f.Changed || len(a.reserved) > 0; {
	case err != nil:
		return err
	case !busy:
		a.busy = time.Time{}
	case a.busy.IsZero():
		a.busy = time.Now()
		return nil
	case time.Since(a.busy) < glanceInterval:
		return nil
	}
	return a.reportHost(ctx, l, f)
}

func (a *Agent) reportInstances(ctx context.Context, l *lanes.Lanes, f desired.Findings) error {
	for uid, u := range a.server.instances {
		i, err := api.From[api.Instance](u)
		if err != nil {
			return err
		}
		status := a.statusOf(uid, i, l, f)
		if _, asked := a.server.asked[uid]; asked || reflect.DeepEqual(status, i.Status) {
			continue
		}
		i.Status = status
		if err = a.writeStatus(ctx, i); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// statusOf returns the status of an Instance.
func (a *Agent) statusOf(uid string, i api.Instance, l *lanes.Lanes, f desired.Findings) api.InstanceStatus {
	a.desired.Lock()
	defer a.desired.Unlock()
	s := api.InstanceStatus{Phase: "Waiting"}
	has, known := a.desired.State.Instances[uid]
	if known {
		s = a.instances.Status(uid, has, l)
	}
	switch {
	case f.Regressed != "":
		s.Phase = "Waiting"
		s.Message, s.Brief = "HubRegressed: "+f.Regressed, "this host does not follow the hub just now"
	case f.Refused[uid] != "":
		s.Phase, s.Message, s.Brief = "Refused", f.Refused[uid], f.Refused[uid]
	case slices.Contains(f.Waiting, uid) && a.desired.State.Hold != nil:
		s.Brief = putOff
		s.Message = strings.TrimSuffix(putOff+": "+a.desired.State.Hold.Reason+"; "+s.Message, "; ")
	case slices.Contains(f.Differs, uid) && s.Message == "":
		s.Brief = "it runs as it was declared before, and not as here: the next change of its spec is done"
		s.Message = s.Brief
	}
	if i.Labels[api.TenantOf] == "" { // it belongs to no App
		s.Brief = ""
	}
	return s
}

// reportHost writes the inventory into the status of the Host if it has changed. The mark stays.
func (a *Agent) reportHost(ctx context.Context, l *lanes.Lanes, f desired.Findings) error {
	live, err := host.Read(host.Live())
	if err != nil {
		return err
	}
	room, err := l.Free()
	if err != nil {
		return err
	}
	known, err := api.From[api.Host](a.server.host)
	if err != nil {
		return err
	}
	now := known
	now.Status.CPUs, now.Status.Free = live.Online().Len(), room.CPUs.String()
	a.free = now.Status.Free
	now.Status.Kernel, now.Status.Root = live.Kernel.Release, a.o.Users.Root
	now.Status.Agent = version.Of().String()
	if now.Status.Proofs, err = proofs(ctx, l); err != nil {
		a.o.Log.WarnContext(ctx, "proofs", "error", err) // the rest is still reported
	}
	follows := a.follows(f)
	if len(known.Status.Conditions) == 1 && known.Status.Conditions[0].Status == follows.Status {
		follows.LastTransitionTime = known.Status.Conditions[0].LastTransitionTime
	}
	now.Status.Conditions = []metav1.Condition{follows}
	brief := func(s api.HostStatus) api.HostStatus { s.Machine, s.Findings, s.Changes = nil, nil, nil; return s }
	changed := !reflect.DeepEqual(brief(known.Status), brief(now.Status))
	since := time.Since(a.told)
	if !changed && since < sites.Inventory && a.seen == nil && time.Since(a.looked) < a.pause()/2 {
		return nil
	}
	d, err := a.details(ctx, l, changed)
	if err != nil {
		return err
	}
	if !changed && since < sites.Inventory && !a.mustSend(d, since) {
		return nil
	}
	now.Status.Machine, now.Status.Findings, now.Status.Changes = d.machine, d.findings, d.changes
	if _, err = api.WriteStatus(ctx, a.server.resource("hosts"), now); err == nil {
		a.told = time.Now()
		a.planned.wasSent(d.planned, !changed)
		a.found.wasSent(d.found, !changed)
	}
	return err
}

// follows says whether this host follows its hub, and what about that people at the hub should know.
func (a *Agent) follows(f desired.Findings) metav1.Condition {
	c := metav1.Condition{Type: "Follows", Status: metav1.ConditionTrue, Reason: "Follows",
		LastTransitionTime: metav1.Now()}
	if f.Regressed != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "HubRegressed", f.Regressed
		return c
	}
	if len(f.Unknown) > 0 {
		c.Message = "runs what this hub does not have: " + a.names(f.Unknown) +
			": an Instance of that name in this namespace says how to adopt it"
	} else {
		_, c.Message, _ = strings.Cut(a.said, ": ") // how the clocks differ, or why nothing is taken over
	}
	if hold := a.state().Hold; hold != nil {
		c.Message = strings.TrimPrefix(c.Message+"; "+putOff+": "+hold.Reason, "; ")
	}
	return c
}

const putOff = "changes are put off at the site" // by people there: hold

// details returns what the last look found, if that was just now and nothing has changed since. Otherwise it
// looks again.
func (a *Agent) details(ctx context.Context, l *lanes.Lanes, changed bool) (details, error) {
	seen := a.seen
	if a.seen = nil; seen != nil && !changed && time.Since(a.looked) < talkInterval {
		return *seen, nil
	}
	return a.look(ctx, l)
}

// findings returns those of an audit of the CPUs of lanes or, if there are no lanes, of the CPUs that could
// be given to lanes.
func findings(h host.Host, l *lanes.Lanes) (all []api.Finding) {
	r := rules.Run(h, settings.Read(host.Live()), l.Placement.CPUs(), "of the lanes in force")
	for _, f := range r.Findings {
		all = append(all, api.Finding{Rule: f.Rule, Severity: f.Severity.String(), Title: f.Title,
			CPUs: f.CPUs.String()})
	}
	return all
}

// proofs returns what measurements of the lanes in force say about their objectives.
func proofs(ctx context.Context, l *lanes.Lanes) (all []api.Proof, err error) {
	if !slices.ContainsFunc(l.Placement.Lanes, func(p plan.Lane) bool {
		return len(p.Spec.Objective.Bounds()) > 0
	}) {
		return nil, nil // Status reads many files
	}
	s, err := l.Status(ctx)
	for _, in := range s.Lanes {
		for _, o := range in.Objectives {
			all = append(all, api.Proof{Lane: in.Name, Metric: o.Metric, Percentile: o.Percentile,
				Bound: o.Bound.String(), Verdict: o.Verdict, Reason: o.Reason})
		}
	}
	return all, err
}

// lastChanges is how many of a host's last events the hub is told.
const lastChanges = 20

// changes returns the events of the host's lanes and settings. Intrusions, which are time taken from a lane's
// CPU, are left out: `isolane history` shows them on the host.
func changes(dir string) ([]api.Change, error) {
	events, err := history.Read(dir, history.Query{})
	var all []api.Change
	for _, e := range events {
		if e.Kind != history.Intrusion {
			all = append(all, api.Change{At: metav1.NewTime(e.At), Kind: string(e.Kind), Lane: e.Lane,
				What: e.What, By: e.By})
		}
	}
	return all[max(0, len(all)-lastChanges):], err
}

// longestReportPause is the longest pause between reports of details that change all the time.
const longestReportPause = 10 * time.Minute

// details are what a host reports beside its counts of CPUs.
type details struct {
	machine  json.RawMessage
	findings []api.Finding
	changes  []api.Change
	planned  string // what a planner needs of machine
	found    string // findings and changes
}

// pausePerCost times the CPU time of a look at the details is how long they are then left alone: on a large
// machine an audit reads many thousand files.
const pausePerCost = 1000

// pause returns how long the details are left alone after a look: for so much less than the interval that the
// next glance looks.
func (a *Agent) pause() time.Duration { return max(glanceInterval*9/10, pausePerCost*a.cost) }

// spent returns the CPU time of the whole process: a look costs more than the time of its own thread.
func spent() time.Duration {
	var of unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &of) != nil {
		return 0
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano())
}

// look reads the details.
func (a *Agent) look(ctx context.Context, l *lanes.Lanes) (d details, err error) {
	from := spent()
	defer func() { a.looked, a.cost = time.Now(), spent()-from }()
	live, err := host.Read(host.Live())
	if err != nil {
		return d, err
	}
	live = live.Allowing(host.Allowance{CPUs: a.o.Lanes.CPUs}) // this process may keep off lanes' CPUs
	m, err := l.Machine(live)
	if err != nil {
		return d, err
	}
	d.findings = findings(live, l)
	if d.changes, err = changes(history.Place()); err != nil {
		a.o.Log.WarnContext(ctx, "history", "error", err) // the rest is still reported
	}
	if d.machine, err = json.Marshal(m); err != nil {
		return d, err
	}
	if d.planned, err = counted(m); err != nil {
		return d, err
	}
	found, err := json.Marshal([]any{d.findings, d.changes})
	d.found = string(found)
	return d, err
}

// counted returns a machine with its lanes as text, without what changes all the time and does not matter to
// a planner.
func counted(m lanes.Machine) (string, error) {
	m.Warnings, m.Kernel.Steal = nil, nil
	m.Interrupts = slices.Clone(m.Interrupts)
	for n := range m.Interrupts {
		m.Interrupts[n].Affinity, m.Interrupts[n].Effective = nil, nil
	}
	m.NUMANodes = slices.Clone(m.NUMANodes)
	for n := range m.NUMANodes {
		pools := slices.Clone(m.NUMANodes[n].Hugepages)
		for i := range pools {
			pools[i].Free = nil
		}
		m.NUMANodes[n].Hugepages = pools
	}
	text, err := json.Marshal(m)
	return string(text), err
}

// mustSend reports whether details are to be sent, so long after the last ones.
func (a *Agent) mustSend(d details, since time.Duration) bool {
	return a.planned.isDue(d.planned, since) || a.found.isDue(d.found, since)
}

// detail is what was last sent of one kind of detail. News is sent within a minute; a detail that changes all
// the time is sent less and less often.
type detail struct {
	text  string
	pause time.Duration
}

func (d *detail) isDue(text string, since time.Duration) bool {
	return text != d.text && since >= max(d.pause, glanceInterval)
}

// wasSent records that a text was sent. alone means that nothing else called for sending at once.
func (d *detail) wasSent(text string, alone bool) {
	switch {
	case text == d.text:
		d.pause = 0
	case alone && d.text != "":
		d.pause = min(2*max(d.pause, glanceInterval), longestReportPause)
	}
	d.text = text
}
