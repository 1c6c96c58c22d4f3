# Which machines each study had, by its own words. Nothing here needs a provider or an account: `terraform init && terraform test` in this directory.

variable "study" {
  type = string
  validation {
    condition     = contains(keys(local.studies), var.study)
    error_message = "Expected one of: ${join(", ", keys(local.studies))}."
  }
}

locals {
  studies = {
    # Its table of EC2 instances; two of the clients were used.
    "kesque-2019" = { brokers = [3, "i3.4xlarge"], zookeeper = [3, "t2.small"], load = [4, "c5.2xlarge"] }
    # "we went with the i3en.2xlarge"; "four worker instances", "optionally a three-instance Apache ZooKeeper cluster". It names no type for these: the clients' is
    # ours, ZooKeeper's that of the other studies.
    "confluent-2020" = { brokers = [3, "i3en.2xlarge"], zookeeper = [3, "t2.small"], load = [4, "c5n.2xlarge"] }
    # "the same instance type as Confluent's - specifically, i3en.2xlarge"; "the same testbed definitions"; "one set of three instances".
    "streamnative-2020" = { brokers = [3, "i3en.2xlarge"], zookeeper = [3, "t2.small"], load = [4, "c5n.2xlarge"] }
    # "3 Broker VMs of type i3en.6xlarge", "4 Client VMs of type m5n.8xlarge", "ZooKeeper VMs of type t2.small".
    "streamnative-2022" = { brokers = [3, "i3en.6xlarge"], zookeeper = [3, "t2.small"], load = [4, "m5n.8xlarge"] }
  }
  names = { brokers = "broker", zookeeper = "zookeeper", load = "load" }
}

output "all" {
  description = "Every machine by its name: the group of the inventory, its number there, its type."
  value = merge([for group, machines in local.studies[var.study] : {
    for node in range(1, tonumber(machines[0]) + 1) : "${local.names[group]}-${node}" => { group = group, node = node, type = machines[1] }
  }]...)
}
