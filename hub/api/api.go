// Package api has what Isolane adds to the Kubernetes API of a hub, as documents and as Go types.
package api

import (
	_ "embed"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Manifests are the kinds of resources, and the rights of hosts that join and that have joined.
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
	Joining   = "system:bootstrappers:isolane" // before : and a site: of hosts that join
	KeyOf     = "isolane.dev/key"              // annotation of a Host: the digest of its key
)

// Resource names a kind's resource.
func Resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: name}
}

// Namespace is where all of a host is, and nothing else.
func Namespace(host string) string { return "host-" + host }

// User is who a host is for the hub.
func User(host string) string { return "isolane:host:" + host }

// Host is a machine that has joined.
type Host struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              HostSpec   `json:"spec"`
	Status            HostStatus `json:"status,omitzero"`
}

// HostSpec is what the hub says of a host.
type HostSpec struct {
	Site string `json:"site"`
}

// HostStatus is what a host says of itself.
type HostStatus struct {
	Mark       string             `json:"mark,omitempty"` // by which the host knows the hub again
	CPUs       int                `json:"cpus,omitempty"`
	Free       string             `json:"free,omitempty"`    // a cpulist
	Kernel     string             `json:"kernel,omitempty"`  // its release
	Machine    json.RawMessage    `json:"machine,omitempty"` // as isolane host -o json
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Instance is what runs on one host in a lane.
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              InstanceSpec   `json:"spec"`
	Status            InstanceStatus `json:"status,omitzero"`
}

// InstanceSpec is what is to run.
type InstanceSpec struct {
	Lane    json.RawMessage `json:"lane"`    // the spec of a lane
	Command []string        `json:"command"` // a program of the host, and its arguments
	Adopts  string          `json:"adopts,omitempty"`
}

// InstanceStatus is what the host says of it.
type InstanceStatus struct {
	Phase      string `json:"phase,omitempty"` // Running, Refused, Failed, Waiting or Ending
	CPUs       string `json:"cpus,omitempty"`  // a cpulist
	Message    string `json:"message,omitempty"`
	Generation int64  `json:"observedGeneration,omitempty"`
}

// From reads one of these types from what the dynamic client returns.
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

// To is the way back.
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

// normal makes whole numbers what the client expects.
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
