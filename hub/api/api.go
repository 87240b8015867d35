// Package api has what Isolane adds to a hub's Kubernetes API, as manifests and as Go types.
package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"isolane.dev/isolane/lane"
)

// Manifests defines the kinds of resources, and the rights of hosts that join and of hosts that have joined.
//
//go:embed manifests.yaml
var Manifests []byte

// The kinds, and the names by which things find one another.
const (
	Group     = "isolane.dev"
	Version   = "v1alpha1"
	Finalizer = "isolane.dev/host"             // of an Instance that a host has taken over
	Signer    = "isolane.dev/host"             // of the certificates of hosts
	Hosts     = "isolane:hosts"                // the group of hosts that have joined
	Renewing  = "isolane:renewing"             // the group of hosts that use the renewal certificate
	URLs      = "isolane.dev/hub"              // annotation of namespace kube-system: all URLs of the hub
	Renewal   = "isolane.dev/renewal"          // annotation there: how often hosts renew their Leases
	Joining   = "system:bootstrappers:isolane" // group of joining hosts, followed by ":" and a site
	KeyOf     = "isolane.dev/key"              // annotation of a Host: the digest of its key
	AppOf     = "isolane.dev/app"              // label of an Instance: NAMESPACE.NAME of its App; App finalizer
	TenantOf  = "isolane.dev/tenant"           // label of an Instance: the namespace of its App
)

// The only phases of an Instance that is to be reserved (InstanceSpec.Reserve).
const (
	Reserved = "Reserved" // its lane is in force, for half a minute; status.placement has it
	Refused  = "Refused"  // status.refusal or the message says why; status.placement is what the host has now
	Lapsed   = "Lapsed"   // the hub did not confirm it in time, so its lane was released
)

// NotYet says why something that has begun on a host is not up yet. It may still come up by itself.
type NotYet string

func (n NotYet) Error() string { return string(n) }

// Resource returns the resource of a kind.
func Resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: name}
}

// Namespace returns the namespace of a host, which holds everything of that host and nothing else.
func Namespace(host string) string { return "host-" + host }

// User returns the user name of a host at the hub.
func User(host string) string { return "isolane:host:" + host }

// Renewer returns the user name of a host that uses its renewal certificate. It may only ask for another
// certificate.
func Renewer(host string) string { return "isolane:renew:" + host }

// Host is a machine that has joined.
type Host struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              HostSpec   `json:"spec"`
	Status            HostStatus `json:"status,omitzero"`
}

// HostSpec is what the hub says about a host.
type HostSpec struct {
	Site string `json:"site"`
}

// HostStatus is what a host says about itself.
type HostStatus struct {
	Mark       string             `json:"mark,omitempty"` // by which the host recognizes its hub
	CPUs       int                `json:"cpus,omitempty"`
	Free       string             `json:"free,omitempty"`    // a cpulist
	Kernel     string             `json:"kernel,omitempty"`  // its release
	Agent      string             `json:"agent,omitempty"`   // the version of isolane-hub there
	Root       []string           `json:"root,omitempty"`    // tenants whose commands may be root there
	Machine    json.RawMessage    `json:"machine,omitempty"` // as printed by isolane host -o json
	Findings   []Finding          `json:"findings,omitempty"`
	Proofs     []Proof            `json:"proofs,omitempty"`
	Changes    []Change           `json:"changes,omitempty"` // last events of isolane history, newest last
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Finding is a finding of an audit of a host, named by its rule.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	CPUs     string `json:"cpus,omitempty"` // a cpulist; "": the whole machine
}

// Change is an event of a host's lanes and settings.
type Change struct {
	At   metav1.Time `json:"at"`
	Kind string      `json:"kind"` // as in isolane history: applied, released, drift, put back, proof, boot
	Lane string      `json:"lane,omitempty"`
	What string      `json:"what"`
	By   string      `json:"by,omitempty"` // who did it, if that is known and was no command of Isolane
}

// Proof says whether a lane keeps one bound of its objective, by the last measurement beside the lane.
type Proof struct {
	Lane       string       `json:"lane"`
	Metric     string       `json:"metric"` // rtt or throughput
	Percentile string       `json:"percentile,omitempty"`
	Bound      string       `json:"bound"` // "rtt p99.9 at most 50us"
	Verdict    lane.Verdict `json:"verdict"`
	Reason     string       `json:"reason,omitempty"` // of any verdict but held
}

// Proved is the prefix of the labels that the hub gives its copy of a host for the proofs there. The label
// rtt-p99.9 is "held" if a lane keeps such a bound and none misses one, and "missed" if one does.
const Proved = "proved.isolane.dev/"

// ProvedLabels returns these labels.
func (s HostStatus) ProvedLabels() map[string]string {
	labels := map[string]string{}
	for _, p := range s.Proofs {
		key := Proved + p.Metric
		if p.Percentile != "" {
			key += "-" + p.Percentile
		}
		if p.Verdict == lane.Missed || p.Verdict == lane.Held && labels[key] == "" {
			labels[key] = string(p.Verdict)
		}
	}
	return labels
}

// Instance is a workload that runs on one host in a lane.
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              InstanceSpec   `json:"spec"`
	Status            InstanceStatus `json:"status,omitzero"`
}

// InstanceSpec declares what is to run.
type InstanceSpec struct {
	Lane     json.RawMessage `json:"lane"` // the spec of a lane
	Workload `json:",inline"`
	Tenant   string `json:"tenant,omitempty"` // the namespace whose user runs it on the host; "": its own
	Adopts   string `json:"adopts,omitempty"`
	Reserve  bool   `json:"reserve,omitempty"` // reserve the lane only, for a short time: nothing runs yet
}

// Workload is what runs in a lane: a command, a service, or a container with the command of its image or
// another.
type Workload struct {
	Command []string `json:"command,omitempty"` // a program and its arguments, on the host or in the image
	Service string   `json:"service,omitempty"` // a systemd unit that the host has, "router.service"
	Image   string   `json:"image,omitempty"`   // of a container; Podman on the host must have it already
	Root    bool     `json:"root,omitempty"`    // it runs as root; a service must say so, whatever its user
}

// InstanceStatus is what the host says about an Instance.
type InstanceStatus struct {
	Phase      string          `json:"phase,omitempty"` // Starting, Running, Failed, Waiting, Ending
	CPUs       string          `json:"cpus,omitempty"`  // a cpulist
	Message    string          `json:"message,omitempty"`
	Brief      string          `json:"brief,omitempty"` // the part of the message that the App's tenant may read
	Generation int64           `json:"observedGeneration,omitempty"`
	Placement  json.RawMessage `json:"placement,omitempty"` // of all lanes of the host, as the answer to Reserve
	Refusal    json.RawMessage `json:"refusal,omitempty"`
}

// App is a workload to run in a lane on as many hosts as it says. Its namespace belongs to its tenant.
type App struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              AppSpec   `json:"spec"`
	Status            AppStatus `json:"status,omitzero"`
}

// AppSpec declares what is to run, and where.
type AppSpec struct {
	Lane     json.RawMessage `json:"lane"` // the spec of a lane; lanes that it names are of its namespace
	Workload `json:",inline"`
	Where    Where `json:"where,omitzero"`
	Replicas int   `json:"replicas"` // each on a different host
}

// Where says which hosts may be chosen. An empty field does not restrict them.
type Where struct {
	Sites  []string          `json:"sites,omitempty"`  // one of these
	Zones  []string          `json:"zones,omitempty"`  // its site must be in one of these
	Hosts  []string          `json:"hosts,omitempty"`  // one of these
	Labels map[string]string `json:"labels,omitempty"` // of the Host: it must have all of these
}

// AppStatus is the state of an App. Its tenant reads it, so it names no lane of anybody else.
type AppStatus struct {
	Phase      string   `json:"phase,omitempty"` // Running, Starting, Pending, Refused or Ending
	Running    int      `json:"running"`         // how many of the replicas run
	Hosts      []string `json:"hosts,omitempty"`
	Message    string   `json:"message,omitempty"`
	Generation int64    `json:"observedGeneration,omitempty"`

	Conditions []metav1.Condition `json:"conditions,omitempty"` // Ready: the phase, for programs that wait
}

// Tenant limits what all Apps of the namespace of its name may have together.
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec `json:"spec"`
}

// TenantSpec has the limits. A nil field is no limit.
type TenantSpec struct {
	CPUs      *int     `json:"cpus,omitempty"`      // of the lanes, as declared
	Memory    string   `json:"memory,omitempty"`    // "64Gi"; "": no limit
	Hugepages string   `json:"hugepages,omitempty"` // of all sizes together
	Functions *int     `json:"functions,omitempty"` // virtual functions that lanes ask for
	Instances *int     `json:"instances,omitempty"`
	Sites     []string `json:"sites,omitempty"` // none: all sites
}

// Quota shows a tenant, in its own namespace, the limits of its Tenant and what its Apps use.
type Quota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec  `json:"spec"`
	Status            QuotaStatus `json:"status,omitzero"`
}

// QuotaStatus is what the hub says about a Quota.
type QuotaStatus struct {
	Used Used `json:"used"`
}

// Used is what counts against the fields of a TenantSpec.
type Used struct {
	CPUs      int    `json:"cpus"`
	Memory    string `json:"memory"`
	Hugepages string `json:"hugepages"`
	Functions int    `json:"functions"`
	Instances int    `json:"instances"`
}

// Lane returns the lane of the Instance of that name.
func Lane(name string, spec json.RawMessage) (lane.Lane, error) {
	declared, err := json.Marshal(map[string]any{"apiVersion": lane.APIVersion, "kind": lane.Kind,
		"metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		return lane.Lane{}, err
	}
	want, err := lane.Parse("spec.lane", bytes.NewReader(declared))
	if f, is := errors.AsType[*lane.FieldError](err); is && strings.HasPrefix(f.Field, "spec.") {
		err = &lane.FieldError{Field: "spec.lane" + strings.TrimPrefix(f.Field, "spec"), Text: f.Text}
	}
	if err == nil && want[0].Spec.Network.TakeFromHost {
		err = &lane.FieldError{Field: "spec.lane.network.takeFromHost",
			Text: "expected none: a hub takes no device from a host"}
	}
	if err == nil && want[0].Spec.Network.VF.Trust {
		err = &lane.FieldError{Field: "spec.lane.network.vf.trust",
			Text: "expected none: with it an App may hear frames of others"}
	}
	if err != nil {
		return lane.Lane{}, err
	}
	return want[0], nil
}

// From converts an object of the dynamic client to one of these types.
func From[T any](u *unstructured.Unstructured) (T, error) {
	var t T
	data, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return t, err
}

// To is the inverse of From.
func To(object any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err = json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(normal(content).(map[string]any))}, nil
}

// normal gives whole numbers the type that the dynamic client expects.
func normal(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = normal(v[key])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}
