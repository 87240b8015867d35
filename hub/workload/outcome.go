package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// Outcome is the result of the last look at an Instance: why it does not run.
type Outcome struct {
	generation int64  // of the Instance at that look
	text       string // "": it runs
	brief      string // the part of text that its tenant may read
	starting   bool   // it may still come up by itself
}

// tenantError is an error that contains only what the Instance's tenant has declared and what came of that.
type tenantError struct{ error }

func (o tenantError) Unwrap() error { return o.error }

// asTenantError makes an error a tenantError; nil stays nil.
func asTenantError(err error) error {
	if err != nil {
		err = tenantError{err}
	}
	return err
}

// goesOnPrefix begins the message why a change is not carried out.
const goesOnPrefix = "what ran before goes on: "

// outcomeOf records an error. The tenant may read only what is known to contain nothing of others: refusals
// name lanes, and errors of the kernel name cgroups and devices.
func outcomeOf(i desired.Instance, err error) Outcome {
	p := Outcome{generation: i.Generation}
	if err == nil {
		return p
	}
	p.text, p.brief = err.Error(), "it cannot be brought about on this host: an operator reads why"
	if _, is := errors.AsType[*plan.Refusal](err); is {
		p.brief = "this host has no room for the lane as it is declared"
	}
	if of, is := errors.AsType[tenantError](err); is {
		p.brief = of.Error()
	}
	notYet, is := errors.AsType[api.NotYet](err)
	if p.starting = is; is {
		p.brief = notYet.Error()
	}
	if strings.HasPrefix(p.text, goesOnPrefix) {
		p.brief = goesOnPrefix + p.brief
	}
	return p
}

// Outcome returns the outcome of an Instance; zero if it has not been looked at.
func (p *Instances) Outcome(uid string) Outcome { return p.outcomes[uid] }

// Status returns the status of an Instance that this host is to run.
func (p *Instances) Status(uid string, i desired.Instance, l *lanes.Lanes) api.InstanceStatus {
	is, tried := p.outcomes[uid]
	tried = tried && is.generation == i.Generation // only if the present spec was looked at
	s := api.InstanceStatus{Phase: "Running", Generation: max(i.Generation, 0)}
	switch {
	case i.Ending:
		s.Phase = "Ending"
	case !tried || is.starting:
		s.Phase = "Starting"
	case is.text != "":
		s.Phase = "Failed"
	default:
		s.Message = p.Lacks(i.Name)
	}
	if tried && s.Message == "" {
		s.Message, s.Brief = is.text, is.brief
	}
	placed, err := l.Lane(i.Name)
	if there, seen := p.inCluster[i.Name]; seen {
		placed, err = there.lane, nil
	}
	if err == nil {
		s.CPUs = placed.CPUs.String()
	}
	return s
}

// Lacks says what a lane lacks, and what about its workload is not stored; "": nothing.
func (p *Instances) Lacks(name string) string {
	lacks, err := p.readLacks(name)
	if err = errors.Join(err, p.storeErrors[name]); err != nil {
		lacks = strings.TrimPrefix(lacks+"; "+err.Error(), "; ")
	}
	return lacks
}

// Line describes an Instance for people, by what is on this host now.
func (p *Instances) Line(ctx context.Context, i desired.Instance) (string, error) {
	var spec api.InstanceSpec
	if err := json.Unmarshal(i.Spec, &spec); err != nil {
		return "", err
	}
	state := "does not run"
	if g, pids, err := p.laneGroup(i.Name); err == nil {
		runs, why := p.workload(i.Name, spec).isRunning(ctx, pids)
		switch {
		case why != nil:
			state += ": " + why.Error()
		case runs:
			state = fmt.Sprintf("runs on CPUs %s, processes %v", g.Lane.CPUs, pids)
		}
	}
	if i.Ending {
		state += ", and is to end"
	}
	return i.Name + ": " + state, nil
}
