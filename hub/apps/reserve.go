package apps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// answerTimeout is how long a host may take to accept or refuse a lane, unless Controller.Answer says
// otherwise.
const answerTimeout = 2 * time.Second

// reserver asks hosts for one Instance of an App.
type reserver struct {
	*Controller
	app      api.App
	spec     api.InstanceSpec
	sites    []string                   // that the tenant's quota allows; none: all
	reserved *unstructured.Unstructured // the Instance that a host has reserved
}

func (c *Controller) instances(host string) dynamic.ResourceInterface {
	return c.Client.Resource(api.Resource("instances")).Namespace(api.Namespace(host))
}

// Reserve makes an Instance that is only to be reserved, and waits for the host's answer. It withdraws what
// the host does not reserve.
func (r *reserver) Reserve(ctx context.Context, host string, l lane.Lane) (plan.Placement, error) {
	if err := r.checkPresent(ctx, host); err != nil {
		return plan.Placement{}, err
	}
	u, err := api.To(api.Instance{
		TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "Instance"},
		ObjectMeta: metav1.ObjectMeta{Name: l.Metadata.Name,
			Labels: map[string]string{api.AppOf: l.Metadata.Name, api.TenantOf: r.app.Namespace}},
		Spec: r.spec})
	if err != nil {
		return plan.Placement{}, err
	}
	if u, err = r.instances(host).Create(ctx, u, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return plan.Placement{}, errors.New("it has an Instance of this name that is not of the App")
	} else if err != nil {
		return plan.Placement{}, err
	}
	asked, err := api.From[api.Instance](u)
	if err != nil {
		return plan.Placement{}, err
	}
	r.book.wrote(asked)
	said, err := r.wait(ctx, host, u)
	if _, mute := errors.AsType[noAnswer](err); mute {
		r.mutes.recordSilent(host, r.siteOf(host), time.Now())
	}
	if err == nil {
		r.mutes.recordAnswer(host, r.siteOf(host))
		var placed plan.Placement
		if placed, err = placementIn(said, l); err == nil {
			r.reserved = said
			return placed, nil
		}
		if _, refused := errors.AsType[*plan.Refusal](err); refused {
			return placed, errors.Join(err, r.withdraw(ctx, asked))
		}
	}
	return plan.Placement{}, errors.Join(err, r.withdraw(ctx, asked))
}

// checkPresent checks that a host is there: a host whose Lease has expired need not be asked.
func (c *Controller) checkPresent(ctx context.Context, host string) error {
	lease, err := c.Core.CoordinationV1().Leases(api.Namespace(host)).Get(ctx, host, metav1.GetOptions{})
	if err != nil || lease.Spec.LeaseDurationSeconds == nil {
		return errors.Join(errors.New("it was never there"), err)
	}
	if at, is := lastSeen(lease); is {
		return fmt.Errorf("it was last there at %s", at.UTC().Format(time.RFC3339))
	}
	return nil
}

// renewedAt returns when a Lease was renewed, by the clock of the API server: a host's clock may be wrong.
func renewedAt(lease *coordinationv1.Lease) (at time.Time) {
	for _, by := range lease.ManagedFields {
		if by.Time != nil && by.Time.After(at) {
			at = by.Time.Time
		}
	}
	return at
}

// noAnswer is the error if a host has not answered; its value is how long the hub waited.
type noAnswer time.Duration

func (n noAnswer) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(n)) }

// wait waits for a host's answer about an Instance. The error is a noAnswer if none came.
func (r *reserver) wait(ctx context.Context, host string, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	limit := cmp.Or(r.Answer, answerTimeout)
	brief, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w, err := r.instances(host).Watch(brief, metav1.ListOptions{
		FieldSelector: "metadata.name=" + u.GetName(), ResourceVersion: u.GetResourceVersion()})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	for {
		select {
		case <-brief.Done():
			return nil, cmp.Or(ctx.Err(), error(noAnswer(limit)))
		case event, open := <-w.ResultChan():
			if !open && brief.Err() == nil {
				return nil, errors.New("it is not known whether it has answered: the hub's API has ended")
			}
			now, is := event.Object.(*unstructured.Unstructured)
			if !is || now.GetUID() != u.GetUID() {
				continue
			}
			if phase, _, _ := unstructured.NestedString(now.Object, "status", "phase"); phase != "" {
				return now, nil
			}
		}
	}
}

// placementIn returns what a host has placed, by its answer. The error is a *plan.Refusal or a place.Declined
// if that is no.
func placementIn(u *unstructured.Unstructured, l lane.Lane) (p plan.Placement, err error) {
	i, err := api.From[api.Instance](u)
	if err != nil {
		return p, err
	}
	switch {
	case len(i.Status.Placement) > 0:
	case i.Status.Phase == api.Refused:
		return p, place.Declined(i.Status.Message)
	default:
		return p, fmt.Errorf("%s: %s", i.Status.Phase, i.Status.Message)
	}
	if err = json.Unmarshal(i.Status.Placement, &p); err != nil {
		return p, fmt.Errorf("status.placement: %w", err)
	}
	if i.Status.Phase == api.Reserved {
		return p, nil
	}
	refusal := &plan.Refusal{Lane: l.Metadata.Name, Blocking: []string{i.Status.Message}}
	if len(i.Status.Refusal) > 0 {
		if err = json.Unmarshal(i.Status.Refusal, refusal); err != nil {
			return p, fmt.Errorf("status.refusal: %w", err)
		}
	}
	return p, refusal
}

// withdraw ends an Instance, or takes back the request for one. If that fails, a reservation ends by itself.
func (c *Controller) withdraw(ctx context.Context, i api.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	err := c.instances(hostOf(i)).Delete(ctx, i.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &i.UID}})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}

// confirm turns a reservation into an Instance, if it is still as the host answered: a lapsed one is not
// confirmed.
func (r *reserver) confirm(ctx context.Context, host string) (i api.Instance, err error) {
	change, err := json.Marshal(map[string]any{"spec": map[string]any{"reserve": nil},
		"metadata": map[string]any{"uid": r.reserved.GetUID(), "resourceVersion": r.reserved.GetResourceVersion()}})
	if err != nil {
		return i, err
	}
	u, err := r.instances(host).Patch(ctx, r.reserved.GetName(), types.MergePatchType, change,
		metav1.PatchOptions{})
	if err != nil {
		return i, err
	}
	if i, err = api.From[api.Instance](u); err == nil {
		r.book.wrote(i)
	}
	return i, err
}
