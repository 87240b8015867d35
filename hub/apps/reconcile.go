package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/lane"
)

// The phases of an App.
const (
	Running  = "Running"  // all its Instances run
	Starting = "Starting" // all have a host
	Pending  = "Pending"  // some have no host yet
	Refused  = "Refused"  // no host could ever run it
	Ending   = "Ending"
)

// When an App without a host is tried again: retrySoon if some hosts have not been asked, else after retry.
// At most maxBatch Instances of one App are placed at a time; after batchPause it goes on, when the other
// waiting Apps have had their turn.
const (
	retrySoon  = time.Second
	retry      = 10 * time.Second
	maxBatch   = 4
	batchPause = time.Millisecond
)

// reconcile brings one App nearer to its declaration. It returns when to look again; 0: when something
// changes.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	space, short, _ := strings.Cut(name, ".")
	all := c.appsOf(space)
	u, err := all.Get(ctx, short, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		delete(c.refusals, name)
		delete(c.explained, name)
		return 0, c.forgetWhy(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	app, err := api.From[api.App](u)
	if err != nil {
		return 0, err
	}
	if len(name) > validation.LabelValueMaxLength {
		return 0, c.refuse(ctx, app, nil, fmt.Errorf("metadata.name: expected at most %d characters, as it is "+
			"%s on its hosts", validation.LabelValueMaxLength-len(space)-1, name))
	}
	has, err := c.instancesOf(ctx, name)
	if err == nil && endsSome(app, has) { // that is not decided by what the watch has shown so far
		has, err = listInstances(ctx, c.Client, api.AppOf+"="+name)
		has = onlyOf(name, has)
	}
	if err != nil {
		return 0, err
	}
	if app.DeletionTimestamp != nil {
		return 0, c.endApp(ctx, u, app, has)
	}
	if !slices.Contains(app.Finalizers, api.AppOf) {
		if err = api.SetFinalizers(ctx, all, u, append(app.Finalizers, api.AppOf)); err != nil {
			return 0, err
		}
	}
	return c.scale(ctx, app, has)
}

// endsSome reports whether something of an App is to end: Instances, or a deleted App itself.
func endsSome(app api.App, has []api.Instance) bool {
	if app.DeletionTimestamp != nil {
		return len(has) == 0
	}
	return len(has) > app.Spec.Replicas ||
		slices.ContainsFunc(has, func(i api.Instance) bool { return i.Spec.Reserve })
}

// instancesOf returns the present Instances of an App on all hosts.
func (c *Controller) instancesOf(ctx context.Context, app string) ([]api.Instance, error) {
	all, err := c.book.with(ctx, api.AppOf, app)
	return onlyOf(app, all), err
}

// onlyOf leaves out Instances of another name, which are not the App's, whatever their labels.
func onlyOf(app string, all []api.Instance) []api.Instance {
	return slices.DeleteFunc(all, func(i api.Instance) bool { return i.Name != app })
}

func hostOf(i api.Instance) string { return strings.TrimPrefix(i.Namespace, api.Namespace("")) }

// appsOf returns the client for the Apps of a namespace.
func (c *Controller) appsOf(space string) dynamic.ResourceInterface {
	return c.Client.Resource(api.Resource("apps")).Namespace(space)
}

// endApp deletes the Instances of a deleted App, which gives them tombstones, and removes the App's finalizer
// when the hosts have ended them.
func (c *Controller) endApp(ctx context.Context, u *unstructured.Unstructured, app api.App,
	has []api.Instance) error {
	if len(has) == 0 {
		ours := func(f string) bool { return f == api.AppOf }
		err := api.SetFinalizers(ctx, c.appsOf(app.Namespace), u, slices.DeleteFunc(app.Finalizers, ours))
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	}
	var failed error
	var hosts []string
	for _, i := range has {
		hosts = append(hosts, hostOf(i))
		if i.DeletionTimestamp == nil {
			failed = errors.Join(failed, c.withdraw(ctx, i))
		}
	}
	s := api.AppStatus{Phase: Ending, Generation: app.Generation, Hosts: hosts,
		Message: "waits until hosts have ended it: " + c.waitsFor(has)}
	return errors.Join(failed, c.writeStatus(ctx, app, s))
}

// scale brings the Instances of an App to the declared number and spec.
func (c *Controller) scale(ctx context.Context, app api.App, has []api.Instance) (time.Duration, error) {
	spec, l, err := instanceOf(app)
	var t tenant
	if err == nil {
		t, err = c.tenant(ctx, app, l)
	}
	if err != nil {
		return 0, c.refuse(ctx, app, has, err)
	}
	except := map[string]bool{}
	for _, i := range has {
		except[hostOf(i)] = true
	}
	live, err := c.endSurplus(ctx, app, has)
	if err == nil {
		err = t.addEnding(has, live)
	}
	if err != nil {
		return 0, err
	}
	if err = t.checkQuota(len(live)); err != nil {
		return retry, c.refuse(ctx, app, live, err)
	}
	for _, i := range live {
		if err = c.updateInstance(ctx, i, spec); err != nil {
			return 0, err
		}
	}
	r := &reserver{Controller: c, app: app, spec: spec, sites: t.quota.Sites}
	r.spec.Reserve = true
	var d place.Decision
	var over error // which limit of the quota forbids more
	decided := map[string]string{}
	for n := 0; n < maxBatch && len(live) < app.Spec.Replicas; n++ {
		if over = t.checkQuota(len(live) + 1); over != nil {
			break
		}
		if d, err = c.placeOne(ctx, r, l, except); err != nil || d.Host == "" {
			break
		}
		var made api.Instance
		if made, err = r.confirm(ctx, d.Host); err != nil {
			break
		}
		live, except[d.Host], decided[d.Host] = append(live, made), true, d.Why()
	}
	if err = errors.Join(err, c.keepWhy(ctx, l.Metadata.Name, decided)); err != nil {
		return 0, err
	}
	if over != nil {
		return retry, c.refuse(ctx, app, live, over)
	}
	return c.conclude(ctx, app, live, d, l)
}

// endSurplus returns the Instances that an App still wants, and ends the others: the surplus, and
// reservations that an earlier run of the hub has asked for and not confirmed.
func (c *Controller) endSurplus(ctx context.Context, app api.App, has []api.Instance) (
	live []api.Instance, err error) {
	for _, i := range has {
		switch {
		case i.DeletionTimestamp != nil:
		case i.Spec.Reserve || len(live) == app.Spec.Replicas:
			err = errors.Join(err, c.withdraw(ctx, i))
		default:
			live = append(live, i)
		}
	}
	return live, err
}

// nameOf returns the name of an App's Instances.
func nameOf(app api.App) string { return app.Namespace + "." + app.Name }

// instanceOf returns what an App is on each host: an Instance, and its lane by the name that it has there.
func instanceOf(app api.App) (api.InstanceSpec, lane.Lane, error) {
	spec := api.InstanceSpec{Workload: app.Spec.Workload, Tenant: app.Namespace}
	l, err := api.Lane(nameOf(app), app.Spec.Lane)
	if err != nil {
		return spec, l, err
	}
	if l.Spec.Cgroup.Path != "" {
		return spec, l, errors.New("spec.lane.cgroup.path: expected none: what an App runs has one of its own")
	}
	if l.Spec.Near.Lane != "" { // of the same tenant: naming a lane must not reveal what others have
		l.Spec.Near.Lane = app.Namespace + "." + l.Spec.Near.Lane
	}
	for n, o := range l.Spec.Apart.Lanes {
		l.Spec.Apart.Lanes[n] = app.Namespace + "." + o
	}
	spec.Lane, err = json.Marshal(l.Spec)
	return spec, l, err
}

// updateInstance makes an Instance follow its App. If the lane changes, the kept reason for its place is
// replaced: the host itself chooses the CPUs of the new lane.
func (c *Controller) updateInstance(ctx context.Context, i api.Instance, spec api.InstanceSpec) error {
	is, err := api.Lane(i.Name, i.Spec.Lane)
	want, werr := api.Lane(i.Name, spec.Lane)
	same := err == nil && werr == nil && reflect.DeepEqual(is.Spec, want.Spec)
	if same && i.Spec.Tenant == spec.Tenant && reflect.DeepEqual(i.Spec.Workload, spec.Workload) {
		return nil
	}
	if host := hostOf(i); !same {
		text := fmt.Sprintf("%s: on host %s\n  %[2]s: its lane was declared anew at %s: its Instance says which "+
			"CPUs the host has given it, or why it has those of before\n", i.Name, host,
			time.Now().UTC().Format(time.RFC3339))
		if err = c.keepWhy(ctx, i.Name, map[string]string{host: text}); err != nil {
			return err
		}
	}
	i.Spec.Lane, i.Spec.Workload, i.Spec.Tenant = spec.Lane, spec.Workload, spec.Tenant
	u, err := api.To(i)
	if err == nil {
		u, err = c.instances(hostOf(i)).Update(ctx, u, metav1.UpdateOptions{})
	}
	if err == nil {
		i, err = api.From[api.Instance](u)
	}
	if err == nil {
		c.book.wrote(i)
	}
	return err
}

// placeOne chooses a host that has no Instance of this App, and has it reserve the lane. It remembers which
// hosts refused.
func (c *Controller) placeOne(ctx context.Context, r *reserver, l lane.Lane, has map[string]bool) (
	place.Decision, error) {
	name := l.Metadata.Name
	at := r.app.Spec.Where
	w := place.Where{Tenant: r.sites, Sites: at.Sites, Zones: at.Zones, Hosts: at.Hosts, Labels: at.Labels,
		Said: map[string]place.Verdict{}}
	if r.app.Spec.Root {
		w.Root = r.app.Namespace
	}
	for host, was := range c.refusals[name] {
		if time.Now().Before(was.until) && was.generation == r.app.Generation && was.version == c.versionOf(host) {
			w.Said[host] = place.Verdict{Kind: was.kind, Why: was.why}
		} else {
			delete(c.refusals[name], host)
		}
	}
	now := time.Now()
	c.unmuteAlive(ctx, now)
	c.mutes.excludeFrom(&w, now)
	for host := range has {
		w.Said[host] = place.Verdict{Kind: place.Has}
	}
	d, err := c.index.Place(ctx, l, w, r)
	for _, v := range d.Verdicts {
		if !v.Before && (v.Kind == place.Refused || v.Kind == place.Silent) {
			if c.refusals[name] == nil {
				c.refusals[name] = map[string]refusal{}
			}
			why := fmt.Sprintf("at %s: %s", time.Now().UTC().Format(time.TimeOnly), v.Why)
			pause := map[place.Kind]time.Duration{place.Refused: refusalPause, place.Silent: silencePause}[v.Kind]
			c.refusals[name][v.Host] = refusal{v.Kind, why, r.app.Generation, c.versionOf(v.Host),
				time.Now().Add(pause)}
		}
	}
	return d, err
}

// versionOf returns the resourceVersion of a host's last report.
func (c *Controller) versionOf(host string) string {
	object, _, _ := c.hosts.GetByKey(api.Namespace(host) + "/" + host)
	if u, is := object.(*unstructured.Unstructured); is {
		return u.GetResourceVersion()
	}
	return ""
}

// conclude writes the status of an App, after the reasons for it: who has read that may ask for them at once.
// For an App without a host it looks, at that time, for what would help.
func (c *Controller) conclude(ctx context.Context, app api.App, live []api.Instance, d place.Decision,
	l lane.Lane) (time.Duration, error) {
	s := c.statusOf(app, live)
	if len(live) >= app.Spec.Replicas {
		delete(c.explained, l.Metadata.Name)
		return 0, errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, new("")), c.writeStatus(ctx, app, s))
	}
	s.Phase, s.Message = Pending, briefOf(d, len(live), app.Spec.Replicas)
	if d.Host != "" {
		s.Message = fmt.Sprintf("%d of %d have a host so far", len(live), app.Spec.Replicas)
		return batchPause, errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, new("")), c.writeStatus(ctx, app, s))
	}
	if slices.ContainsFunc(d.Verdicts, func(v place.Verdict) bool { return v.Kind == place.Later }) {
		return retrySoon, errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, new(d.Why())),
			c.writeStatus(ctx, app, s))
	}
	asked := slices.ContainsFunc(d.Verdicts, func(v place.Verdict) bool {
		return v.Kind == place.Refused && !v.Before
	})
	if was := c.explained[l.Metadata.Name]; was == s.Message && !asked && app.Status.Phase == Pending {
		s.Message = app.Status.Message // it was explained before
		return retry, errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, nil), c.writeStatus(ctx, app, s))
	}
	c.explained[l.Metadata.Name] = s.Message
	err := errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, new(d.Why())), c.writeStatus(ctx, app, s))
	if err != nil {
		return 0, err
	}
	d.Explain(l)
	s.Message = briefOf(d, len(live), app.Spec.Replicas)
	return retry, errors.Join(c.settleWhy(ctx, l.Metadata.Name, live, new(d.Why())), c.writeStatus(ctx, app, s))
}

// briefOf returns what a tenant may read of a decision about one more of its Instances than have a host, with
// fields named as in an App.
func briefOf(d place.Decision, have, want int) string {
	d.Verdicts = slices.Clone(d.Verdicts)
	for i, v := range d.Verdicts {
		if field, is := strings.CutPrefix(v.Change, "spec."); is {
			d.Verdicts[i].Change = "spec.lane." + field
		}
	}
	if have == 0 {
		return d.Brief()
	}
	return fmt.Sprintf("%d of %d have a host; %s", have, want, d.Brief())
}

// refuse reports that an App can get no more Instances. Those that run go on.
func (c *Controller) refuse(ctx context.Context, app api.App, has []api.Instance, why error) error {
	s := c.statusOf(app, has)
	s.Phase, s.Message = Refused, why.Error()
	text := fmt.Sprintf("%s: refused: %s\n", nameOf(app), s.Message)
	return errors.Join(c.settleWhy(ctx, nameOf(app), has, &text), c.writeStatus(ctx, app, s))
}

// withReady returns the conditions of an App, given those that it had.
func withReady(s api.AppStatus, had []metav1.Condition) []metav1.Condition {
	is := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: s.Phase, Message: s.Message,
		ObservedGeneration: s.Generation}
	if s.Phase == Running {
		is.Status = metav1.ConditionTrue
	}
	had = slices.Clone(had)
	meta.SetStatusCondition(&had, is)
	return had
}

// writeStatus writes the status of an App if it has changed.
func (c *Controller) writeStatus(ctx context.Context, app api.App, s api.AppStatus) error {
	slices.Sort(s.Hosts)
	all := c.appsOf(app.Namespace)
	now, err := all.Get(ctx, app.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	known, err := api.From[api.App](now)
	s.Conditions = withReady(s, known.Status.Conditions)
	if err != nil || reflect.DeepEqual(known.Status, s) {
		return err
	}
	known.Status = s
	_, err = api.WriteStatus(ctx, all, known)
	return err
}
